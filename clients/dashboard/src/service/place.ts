/**
 * Where a person is: `/#/VIEW?name=value`, and for a job `/?job=ID#/VIEW`, so that the views of a run have the same
 * addresses behind the `#` as on the page of a single run.
 */

export const VIEWS = ["jobs", "new", "work", "repositories", "versions", "version", "usage", "access"] as const;
export type ServiceView = (typeof VIEWS)[number];

export function viewAddress(view: ServiceView, params: Record<string, string> = {}): string {
  const query = new URLSearchParams(params).toString();
  return `/#/${view}${query ? `?${query}` : ""}`;
}

export function jobAddress(id: string, view = "now"): string {
  return `/?job=${encodeURIComponent(id)}#/${view}`;
}

/** The job that the address names. */
export function jobOfAddress(): string | null {
  return new URLSearchParams(location.search).get("job");
}
