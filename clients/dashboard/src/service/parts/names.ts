/** Short names of repositories, jobs and programs. */

/** The last part of a repository's address. */
export function repositoryName(url: string): string {
  return (
    url
      .replace(/\/+$/, "")
      .replace(/\.git$/, "")
      .split(/[/:]/)
      .at(-1) || url
  );
}

/** What a job is called: by its own name, else by its repository. */
export function jobName(job: {
  readonly repo_url: string;
  readonly settings: Readonly<Record<string, unknown>>;
}): string {
  return typeof job.settings.name === "string" && job.settings.name.trim()
    ? job.settings.name
    : repositoryName(job.repo_url);
}

/** The program of a line: what follows the repository's address. */
export function programName(line: string, repoUrl: string): string {
  return line.startsWith(`${repoUrl} `) ? line.slice(repoUrl.length + 1) : line;
}
