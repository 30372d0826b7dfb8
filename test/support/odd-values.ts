import fc from "fast-check";

/** Text with what parsers, databases and headers stumble over. */
export const oddString = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.string({ unit: "grapheme" }),
  fc.constantFrom(
    "",
    "\u0000",
    "\ud800",
    "__proto__",
    "constructor",
    "\r\n",
    "null",
    "1e308",
    "🌍",
  ),
);
/** Numbers of JSON, those at the edges of other formats among them. */
export const oddNumber = fc.oneof(
  fc.double(),
  fc.integer(),
  fc.constantFrom(0, -0, -1, 0.1, 1e308, -1e308, 2 ** 53, 2 ** 31, 1e15, 5e-324),
);
/** JSON of any shape, nested a few levels deep. */
export const oddValue = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, depthSize: "small" },
    fc.constantFrom(null, true, false),
    oddNumber,
    oddString,
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(oddString, tie("value"), { maxKeys: 4 }),
  ),
})).value;
