/** How `bun run start` was called: alone, as the parent of workers, or as one of them. */
export type Role =
  | { readonly kind: "single" }
  | { readonly kind: "parent"; readonly workers: number }
  | { readonly kind: "worker" };

const MAX_WORKERS = 64;
/** Given by a parent to its workers only. */
export const WORKER_FLAG = "--as-worker";

/** Throws with one line that says what is accepted. */
export function readRole(parameters: readonly string[]): Role {
  const [first, count, ...rest] = parameters.flatMap((one) => one.split(/(?<=^--workers)=/));
  if (first === undefined) return { kind: "single" };
  if (first === WORKER_FLAG && count === undefined) return { kind: "worker" };
  if (first !== "--workers" || rest.length > 0) {
    throw new Error(
      `${parameters.join(" ")} is not understood; start takes --workers N, or nothing`,
    );
  }
  const workers = /^[1-9]\d?$/.test(count ?? "") ? Number(count) : Number.NaN;
  if (!(workers <= MAX_WORKERS)) {
    throw new Error(
      `--workers is ${JSON.stringify(count ?? "")}, but must be a whole number from 1 to ${MAX_WORKERS}`,
    );
  }
  return { kind: "parent", workers };
}
