type Alignment = "left" | "right";

/** Plain text in columns; columns without an alignment are numbers and stand right. */
export function table(
  head: readonly string[],
  lines: readonly (readonly string[])[],
  alignments: readonly Alignment[],
): string {
  const all = [head, ...lines];
  const widths = head.map((_, column) => Math.max(...all.map((line) => line[column]!.length)));
  const format = (line: readonly string[]) =>
    line
      .map((cell, column) =>
        alignments[column] === "left"
          ? cell.padEnd(widths[column]!)
          : cell.padStart(widths[column]!),
      )
      .join("  ")
      .trimEnd();
  const [first, ...rest] = all.map(format);
  return [first, "-".repeat(Math.max(...all.map((line) => format(line).length))), ...rest].join(
    "\n",
  );
}
