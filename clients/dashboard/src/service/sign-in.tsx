/** Sign in at an OIDC issuer, or with an API key or a token of an issuer. The service seals it in a cookie; the page keeps nothing. */

import { useLoaded } from "../loading";
import { useAction } from "../parts/action";
import { Field, Form, stated } from "../parts/form";
import { Inline } from "../parts/text";
import type { Schema, Session } from "./schema";

interface Props {
  /** Why it is asked for again. */
  readonly reason: string | null;
  readonly onSignedIn: () => void;
}

export function SignIn({ reason, onSignedIn }: Props) {
  const ways = useLoaded<Schema<"SignInWays">>("/session/ways").value;
  const { send, ...action } = useAction();
  const issuers = ways?.issuers ?? [];
  return (
    <section class="panel sign-in">
      <h1>Sign in</h1>
      {reason !== null && (
        <p class="notices" role="alert">
          {reason}
        </p>
      )}
      {ways?.pages.map((issuer) => (
        <p key={issuer}>
          <a href={`/session/oidc?${new URLSearchParams({ issuer })}`}>
            Sign in at <Inline text={issuer} />
          </a>
        </p>
      ))}
      <Form
        {...action}
        submit="Sign in"
        onSubmit={async (given) => {
          const session = await send<Session>("POST", "/session", stated(given));
          if (session !== null) onSignedIn();
        }}
      >
        <Field
          label={issuers.length > 0 ? "API key, or token of an issuer" : "API key"}
          name="token"
          hint="A key begins with grk_. Your browser keeps it for 12 hours, sealed, where no script can read it."
          type="password"
          required
          autofocus
        />
        {issuers.length > 0 && (
          <>
            <p class="hint">
              Tokens of <Inline text={issuers.join(", ")} length={400} /> sign you in too.
            </p>
            <Field label="Tenant" name="tenant" hint="For members of several tenants." />
          </>
        )}
      </Form>
      <details>
        <summary>Where a key comes from</summary>
        <p>An owner makes it on this page, in Access. The first start of the service printed one for its operator.</p>
      </details>
    </section>
  );
}
