import type { Outcome } from "./session.ts";

export function rowsOf(rows: readonly unknown[]): Outcome {
  return { rows, count: rows.length };
}

export function written(count: number): Outcome {
  return { rows: [], count };
}
