/** A client of the service: every route of its OpenAPI document, typed, and the events of a job as they happen. */

import createClient, { type Client } from "openapi-fetch";
import { type FollowOptions, follow, type JobEvent } from "./follow.js";
import type { components, paths } from "./generated/schema.js";

export { type FollowOptions, type JobEvent, ServiceProblem } from "./follow.js";
export type { components, paths } from "./generated/schema.js";

/** A model of the API by its name: `Schema<"JobView">`. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export interface ServiceOptions {
  /** The address of the service, such as `https://gepa.example.org`. */
  url: string;
  /** An API key, or a token of an OIDC issuer. */
  key: string;
  /** For a member of several tenants. */
  tenant?: string;
}

/** `GET`, `POST` and so on take a path of the API; answers have `data`, or `error`: a problem (RFC 9457). */
export interface ServiceClient extends Client<paths> {
  /** Yield the events of a job until its last one; a lost connection is made again. */
  follow(jobId: string, options?: FollowOptions): AsyncGenerator<JobEvent>;
}

/** Return a client of a service. */
export function serviceClient({ url, key, tenant }: ServiceOptions): ServiceClient {
  const headers = { Authorization: `Bearer ${key}`, ...(tenant === undefined ? {} : { "Evolverpc-Tenant": tenant }) };
  const baseUrl = url.replace(/\/+$/, "");
  return Object.assign(createClient<paths>({ baseUrl, headers }), {
    follow: (jobId: string, options: FollowOptions = {}) =>
      follow(`${baseUrl}/job/${encodeURIComponent(jobId)}/stream`, headers, options),
  });
}
