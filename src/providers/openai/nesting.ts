/** Whether parsed JSON has an object or array below more than `levels` others. */
export function nestsDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  if (Array.isArray(value)) {
    for (const child of value) if (nestsDeeperThan(child, levels - 1)) return true;
    return false;
  }
  const fields = value as Readonly<Record<string, unknown>>;
  for (const name in fields) if (nestsDeeperThan(fields[name], levels - 1)) return true;
  return false;
}
