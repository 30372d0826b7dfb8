import { expect } from "bun:test";
import type { Recipe } from "./recipe.ts";

/** Pages, which the endpoint of `endpoint.ts` charges. */
export const unit: Recipe = {
  heading: "A unit of price, such as pages",
  edits: [
    {
      path: "src/lib/units.ts",
      change: [
        {
          before: '  moderation: { neededPrices: "input_cost_per_token"',
          insert:
            '  ocr: { neededPrices: "cost_per_page", tokenPrices: "input", output: "text" },\n',
        },
        {
          before: "  /** Fee for each call, independent of its tokens. */\n",
          insert: `  /** Pages of documents whose text was read. */
  page: {
    kind: "unit",
    price: "pageFemto",
    count: "pages",
    stored: "pages",
    description: "Pages of documents whose text was read.",
    setting: { name: "cost_per_page", category: "ocr" },
    label: "Page",
    per: [1_000, "1K pages"],
    column: "input",
  },
`,
        },
      ],
    },
  ],
  async prove({ call, read }) {
    expect(read("gateway.config.schema.json")).toContain('"cost_per_page"');
    const { body } = await call("GET", "/v1/models/test%2Focr", { key: "secret" });
    expect(body).toMatchObject({ id: "test/ocr", pricing: { page: "0.002" } });
  },
};
