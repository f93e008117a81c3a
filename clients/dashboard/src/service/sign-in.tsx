/** Sign in with an API key, or a token of an OIDC issuer. The service seals it in a cookie; the page keeps nothing. */

import { useState } from "preact/hooks";
import { Inline } from "../parts/text";
import { useAction, useLoaded } from "./loading";
import { TextField } from "./parts/field";
import { ProblemNotice } from "./parts/shown";
import { messagesFor } from "./request";
import type { Schema, Session } from "./schema";

interface Props {
  /** Why it is asked for again. */
  readonly reason: string | null;
  readonly onSignedIn: (session: Session) => void;
}

export function SignIn({ reason, onSignedIn }: Props) {
  const [token, setToken] = useState("");
  const [tenant, setTenant] = useState("");
  const ways = useLoaded<Schema<"SignInWays">>("/session/ways").value;
  const { busy, problem, send } = useAction();
  const issuers = ways?.issuers ?? [];
  const submit = async () => {
    const named = tenant.trim();
    const session = await send<Session>("POST", "/session", {
      token: token.trim(),
      ...(named === "" ? {} : { tenant: named }),
    });
    if (session !== null) onSignedIn(session);
  };
  return (
    <section class="panel sign-in">
      <h1>Sign in</h1>
      {reason !== null && (
        <p class="notices" role="alert">
          {reason}
        </p>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <TextField
          label={issuers.length > 0 ? "API key, or token of an issuer" : "API key"}
          name="token"
          problem={problem}
          hint="It begins with grk_. Your browser keeps it for 12 hours, sealed, where no script can read it."
          value={token}
          onChange={setToken}
          input={{ type: "password", required: true, autofocus: true }}
        />
        {issuers.length > 0 && (
          <>
            <p class="hint">
              Tokens of <Inline text={issuers.join(", ")} length={400} /> sign you in too.
            </p>
            <TextField
              label="Tenant"
              name="tenant"
              problem={problem}
              hint="For members of several tenants."
              value={tenant}
              onChange={setTenant}
            />
          </>
        )}
        {problem !== null && messagesFor(problem, "token").length === 0 && <ProblemNotice problem={problem} />}
        <p>
          <button type="submit" class="primary" disabled={busy || token.trim() === ""}>
            Sign in
          </button>
        </p>
      </form>
      <details>
        <summary>Where a key comes from</summary>
        <p>
          The first start of <code>evolverpc service up</code> prints one. On the machine of the service,{" "}
          <code>evolverpc service keys create TENANT --role editor</code> makes another; owners make keys on this page.
        </p>
      </details>
    </section>
  );
}
