/** Resolves when everything else that is ready has had its turn. */
export function turnOfLoop(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
