import { describe, expect, test } from "bun:test";
import type { CatalogueModel } from "../../src/lib/catalogue-model.ts";
import { createModelIndex } from "../../src/providers/catalogue/model-index.ts";
import { sandboxModels } from "../../src/providers/catalogue/sandbox-models.ts";

const [template] = sandboxModels();

function model(id: string, change: Partial<CatalogueModel> = {}): CatalogueModel {
  return { ...(template as CatalogueModel), id, ...change };
}

describe("a model is found", () => {
  const mini = model("openai/gpt-4o-mini");
  const nested = model("openrouter/openai/gpt-4o");
  const index = createModelIndex({
    models: [mini, nested, model("a/same"), model("b/same")],
  });

  test("by its id, in exactly this spelling", () => {
    expect(index.byId("openai/gpt-4o-mini")).toBe(mini);
    expect(index.resolve("openai/gpt-4o-mini")).toBe(mini);
    expect(index.byId("OpenAI/gpt-4o-mini")).toBeUndefined();
    expect(index.resolve("GPT-4o-mini")).toBeUndefined();
  });

  test("by its slug when no other active model has it", () => {
    expect(index.resolve("gpt-4o-mini")).toBe(mini);
    expect(index.resolve("openai/gpt-4o")).toBe(nested);
    expect(index.byId("gpt-4o-mini")).toBeUndefined();
  });

  test("not by a slug that two have", () => {
    expect(index.resolve("same")).toBeUndefined();
    expect(index.resolve("a/same")?.id).toBe("a/same");
  });

  test("not by names of the object prototype, empty or partial names", () => {
    for (const name of ["", "/", "openai", "openai/", "constructor", "__proto__", "gpt-4o"]) {
      expect(index.resolve(name)).toBeUndefined();
    }
  });
});

test("an inactive model is found by its id but neither has nor disputes a slug", () => {
  const off = model("old/chat-x", { isActive: false });
  const on = model("new/chat-x");
  expect(createModelIndex({ models: [off] }).resolve("chat-x")).toBeUndefined();
  expect(createModelIndex({ models: [off] }).resolve("old/chat-x")).toBe(off);
  expect(createModelIndex({ models: [off, on] }).resolve("chat-x")).toBe(on);
});

test("an id goes before the same text as a slug", () => {
  const direct = model("openai/gpt-4o");
  const index = createModelIndex({ models: [model("openrouter/openai/gpt-4o"), direct] });
  expect(index.resolve("openai/gpt-4o")).toBe(direct);
});

test("all models are listed in their order, whatever happens to the given list", () => {
  const given = [model("a/x"), model("b/y")];
  const index = createModelIndex({ models: given });
  given.pop();
  expect(index.all().map(({ id }) => id)).toEqual(["a/x", "b/y"]);
});
