import { expect, test } from "bun:test";
import { join } from "node:path";
import { ENTITIES, PersonalData } from "../../src/inference/guardrails/screening/personal-data.ts";
import { screenedText } from "../../src/inference/guardrails/screening/text-window.ts";

const root = join(import.meta.dir, "../..");

interface Counts {
  present: number;
  found: number;
  missed: string[];
  wrong: string[];
}

/** Looks for each kind by itself in each line of the corpus, and compares with what stands there. */
async function counted(): Promise<Map<string, Counts>> {
  const corpus = await Bun.file(join(root, "test/fixtures/personal-data.tsv")).text();
  const lines = corpus.split("\n").filter((line) => line !== "");
  expect(lines).toHaveLength(200);
  const counts = new Map<string, Counts>();
  for (const entity of ENTITIES) {
    const detector = new PersonalData([entity]);
    const count: Counts = { present: 0, found: 0, missed: [], wrong: [] };
    for (const line of lines) {
      const [text, stated] = line.split("\t") as [string, string];
      const expected = stated
        .split("|")
        .filter((one) => one.startsWith(`${entity}=`))
        .map((one) => one.slice(entity.length + 1));
      const found = detector.find(text, 0).map(({ start, end }) => text.slice(start, end));
      count.present += expected.length;
      for (const one of expected) {
        if (found.includes(one)) count.found++;
        else count.missed.push(text);
      }
      // Part of what is redacted anyway: no loss.
      const isWrong = (one: string) => !expected.some((right) => right.includes(one));
      count.wrong.push(...found.filter(isWrong).map(() => text));
    }
    counts.set(entity, count);
  }
  return counts;
}

test("of a corpus of 200 lines so much is found, missed and wrongly found as the handbook says", async () => {
  const counts = await counted();
  const page = await Bun.file(join(root, "docs/reference/guardrail-rules.md")).text();
  const stated = [...page.matchAll(/^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|/gm)];
  const told = stated.map(([, entity, ...numbers]) => [entity, ...numbers.map(Number)]);
  const measured = ENTITIES.map((entity) => {
    const { present, found, missed, wrong } = counts.get(entity)!;
    return [entity, present, found, missed.length, wrong.length];
  });
  expect(told).toEqual(measured);
});

test("all kinds together redact what each of them finds", () => {
  const rule = { guardrail: "g", type: "pii", action: "redact" } as const;
  const rules = [{ ...rule, detector: new PersonalData() }];
  const text = "Ada <ada@example.com>, +44 20 7946 0958, IBAN GB82 WEST 1234 5698 7654 32.";
  expect(screenedText(text, rules, () => {})).toBe("Ada <[EMAIL]>, [PHONE], IBAN [IBAN].");
});
