/** The models of the API, as its OpenAPI document describes them. */

import type { components } from "../../../service-typescript/src/generated/schema";

export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export type Job = Schema<"JobView">;
export type Repository = Schema<"RepositoryView">;
export type Version = Schema<"VersionView">;
export type VersionSummary = Schema<"VersionSummary">;
export type Session = Schema<"SessionView">;
