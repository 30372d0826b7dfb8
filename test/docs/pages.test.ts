import { describe, expect, test } from "bun:test";
import { readPage } from "./page.ts";
import { PAGES, readText } from "./pages.ts";

const MOST_WORDS = 1_500;
/** The first block that runs, or that the reader saves, begins at most this many lines after the title. */
const LINES_BEFORE_EXAMPLE = 15;

/** The reasons for which a block that could run does not run in a test. */
const REASONS_NOT_TO_RUN = [
  "needs Docker",
  "needs Kubernetes",
  "needs a client program",
  "needs a provider's key",
  "needs a second machine",
  "needs root",
  "needs the published package",
  "needs Windows or macOS",
  "takes minutes",
];

/** Pages that need not begin with an example, each with its reason. */
const WITHOUT_EXAMPLE_FIRST: Readonly<Record<string, string>> = {
  "docs/reference/glossary.md": "a list of terms",
};

describe.each(PAGES)("%s", (path) => {
  test(`has at most ${MOST_WORDS} words`, async () => {
    const words = (await readText(path)).split(/\s+/).filter(Boolean).length;
    expect(words).toBeLessThanOrEqual(MOST_WORDS);
  });

  test("has one title", async () => {
    expect(readPage(await readText(path)).titles).toHaveLength(1);
  });

  test("skips an example only for a stated reason", async () => {
    const skipped = readPage(await readText(path)).steps.flatMap((step) =>
      step.kind === "example" && step.notRun !== undefined ? [step] : [],
    );
    expect(skipped.filter(({ notRun }) => !REASONS_NOT_TO_RUN.includes(notRun!))).toEqual([]);
  });

  const isTask = /^docs\/(?:start|guides|reference)\//.test(path);
  test.skipIf(!isTask || path in WITHOUT_EXAMPLE_FIRST)("begins with an example", async () => {
    const { titles, steps } = readPage(await readText(path));
    const first = steps[0]?.line ?? Number.POSITIVE_INFINITY;
    expect(first - titles[0]!.line).toBeLessThanOrEqual(LINES_BEFORE_EXAMPLE);
  });
});

test("each page that need not begin with an example exists", () => {
  expect(Object.keys(WITHOUT_EXAMPLE_FIRST).filter((path) => !PAGES.includes(path))).toEqual([]);
});
