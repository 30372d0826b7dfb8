/** Whether parsed JSON has an object or array below more than `levels` others. */
export function nestsDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  for (const child of Array.isArray(value) ? value : Object.values(value)) {
    if (nestsDeeperThan(child, levels - 1)) return true;
  }
  return false;
}
