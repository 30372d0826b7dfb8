import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { termsOf } from "../../src/inference/models/model-catalogue.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

describe("operators of query languages are no operators", () => {
  test.each([
    ["%"],
    ["*"],
    ["_"],
    [":*"],
    ["&"],
    ["|"],
    ["!"],
    ["<->"],
    ["()"],
    ["'"],
    ['"'],
    ["\\"],
    ["''' OR 1=1 --"],
    ["$1"],
    ["?"],
    [";"],
    ["~"],
    ["^.*$"],
    ["🦜"],
    ["\u200d"],
    ["\u202e"],
    ["\u0301"],
  ])("%p alone finds nothing", async (text) => {
    expect(await gateway.found(text)).toEqual([]);
  });

  test.each([
    ["embedder%"],
    ["embed*"],
    ["embedder:*"],
    ["embedder:A"],
    ["embedder & texts"],
    ["!embedder"],
    ["'embedder'"],
    ['"embedder"'],
    ["embedder\\"],
    ["(embedder"],
    ["embedder <-> embedder"],
    ["-embedder"],
  ])("%p finds what its words find", async (text) => {
    expect(await gateway.found(text)).toEqual(["acme/embedder"]);
  });

  test.each([["embedder | programmer"], ["embedder or programmer"], ["emb_dder"], ["e%r"]])(
    "%p is no wider search",
    async (text) => {
      expect(await gateway.found(text)).toEqual([]);
    },
  );

  test("any text at all is answered", async () => {
    const anyText = fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 60 }),
      fc.string({ unit: "binary", maxLength: 60 }),
      fc.string({ unit: fc.constantFrom(..."a1'\"\\:*&|!<->()% _-.,é½²٣ß"), maxLength: 40 }),
    );
    await fc.assert(
      fc.asyncProperty(anyText, async (text) => {
        const refused = text.includes("\0") || text.includes("\ufffd") || !text.isWellFormed();
        fc.pre(!refused);
        expect((await gateway.found(text)).length).toBeLessThanOrEqual(8);
      }),
      { numRuns: 300 },
    );
  });
});

describe("long queries", () => {
  test("no more than 16 words of 64 characters are looked for", () => {
    const long = "x".repeat(100_000);
    for (const query of [long, "ab ".repeat(50_000), "a-".repeat(50_000), `${long} ${long}`]) {
      const words = termsOf(query).flat();
      expect(words.length).toBeLessThanOrEqual(16);
      for (const word of words) expect([...word].length).toBeLessThanOrEqual(64);
    }
    const distinct = Array.from({ length: 200 }, (_, number) => `w${number}`);
    expect(termsOf(distinct.join(" ")).flat()).toEqual(distinct.slice(0, 16));
  });

  test("30 KB of text, nearly all of what a head may hold, is answered by its first words", async () => {
    expect(await gateway.found("embedder ".repeat(3_000))).toEqual(["acme/embedder"]);
    expect(await gateway.found("x".repeat(30_000))).toEqual([]);
    expect(await gateway.found("%".repeat(10_000))).toEqual([]);
    expect(await gateway.found("é".repeat(5_000))).toEqual([]);
  });

  test("a cut in the middle of a character is no error", async () => {
    expect(await gateway.found(`${"x ".repeat(499)}y𝔘𝔘𝔘`)).toEqual([]);
    expect(await gateway.found(`${"-".repeat(999)}𝔘𝔘𝔘`)).toEqual([]);
  });
});
