import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

interface Found {
  readonly object: string;
  readonly data: readonly { readonly id: string }[];
  readonly total: number;
}

const search = (query: string) => gateway.get<Found>(`/v1/models/search?${query}`);

describe("what is found", () => {
  test("models as the list shows them, with the number of all that were found", async () => {
    const { data } = await gateway.get<Found>("/v1/models");
    const embedder = data.find(({ id }) => id === "acme/embedder")!;
    expect(await search("q=embedder")).toEqual({ object: "list", data: [embedder], total: 1 });
    expect(await search("q=nothing-of-the-kind")).toEqual({ object: "list", data: [], total: 0 });
  });

  test("words of the name, the description, the provider and the id, in any case", async () => {
    expect(await gateway.found("PREDECESSOR")).toEqual(["acme/quill-3.5"]);
    expect(await gateway.found("vectors")).toEqual(["acme/embedder"]);
    expect(await gateway.found("Nested")).toEqual(["zenith/author/nested-x"]);
    expect((await gateway.found("acme")).sort()).toEqual([
      "acme/embedder",
      "acme/quill-3.5",
      "acme/quill-4o",
      "acme/quill-4o-mini",
    ]);
  });

  test("only models that have all the words, wherever each of them stands", async () => {
    expect(await gateway.found("acme letters")).toEqual(["acme/quill-4o"]);
    expect(await gateway.found("zenith letters")).toEqual([]);
  });

  test("each word from its beginning on, and never from its middle", async () => {
    expect(await gateway.found("emb")).toEqual(["acme/embedder"]);
    expect(await gateway.found("zen progr")).toEqual(["zenith/programmer"]);
    expect(await gateway.found("retriev vec")).toEqual(["acme/embedder"]);
    expect(await gateway.found("bedder")).toEqual([]);
    expect(await gateway.found("rogrammer")).toEqual([]);
  });

  test("words of a description in another inflection", async () => {
    expect(await gateway.found("reasoning")).toEqual(["acme/quill-4o"]);
    expect(await gateway.found("language letter")).toEqual(["acme/quill-4o"]);
  });

  test("what is written with punctuation only where it stands in a row", async () => {
    expect(await gateway.found("quill-3.5")).toEqual(["acme/quill-3.5"]);
    expect(await gateway.found("quill-5.3")).toEqual([]);
    expect(await gateway.found("4o-mi")).toEqual(["acme/quill-4o-mini"]);
  });

  test("a name that is written in one piece", async () => {
    expect(await gateway.found("quill4omini")).toEqual(["acme/quill-4o-mini"]);
    expect(await gateway.found("quill35")).toEqual(["acme/quill-3.5"]);
  });

  test("letters beyond ASCII, composed or not", async () => {
    expect(await gateway.found("précis")).toEqual(["zenith/programmer"]);
    expect(await gateway.found("PRÉCIS".normalize("NFD"))).toEqual(["zenith/programmer"]);
  });
});

describe("the order", () => {
  test("a name before longer names, and a name before a mention in a description", async () => {
    expect(await gateway.found("quill-4o")).toEqual([
      "acme/quill-4o",
      "zenith/quill-4o",
      "acme/quill-4o-mini",
    ]);
    const quills = await gateway.found("quill");
    expect(quills).toHaveLength(5);
    expect(quills.at(-1)).toBe("zenith/programmer");
  });

  test("a full id before everything else that has its words", async () => {
    for (const id of ["acme/quill-4o", "zenith/quill-4o", "acme/quill-4o-mini"]) {
      expect((await gateway.found(id))[0]).toBe(id);
    }
  });

  test("the same every time", async () => {
    const first = await gateway.found("acme");
    for (let again = 0; again < 3; again += 1) expect(await gateway.found("acme")).toEqual(first);
  });
});

describe("restrictions", () => {
  test("models that are not available are found only when asked for", async () => {
    expect(await gateway.found("withdrawn")).toEqual([]);
    expect(await gateway.found("withdrawn", { active: "false" })).toEqual(["acme/quill-2"]);
  });

  test("the provider restricts the models and their number", async () => {
    expect(await search("q=quill&provider=zenith")).toMatchObject({
      data: [{ id: "zenith/quill-4o" }, { id: "zenith/programmer" }],
      total: 2,
    });
    expect(await search("q=quill&provider=nobody")).toMatchObject({ data: [], total: 0 });
  });

  test("the limit restricts the models and not their number", async () => {
    const { data, total } = await search("q=quill&limit=2");
    expect(data.map(({ id }) => id)).toEqual((await gateway.found("quill")).slice(0, 2));
    expect(total).toBe(5);
    expect((await search("q=quill&limit=100")).data).toHaveLength(5);
  });

  test("without words to look for, all active models are found", async () => {
    const { data } = await gateway.get<Found>("/v1/models");
    for (const query of ["", "q=", "q=%20%09"]) {
      expect(await search(query)).toEqual({ object: "list", data, total: 8 });
    }
    expect(await search("provider=acme&limit=1")).toMatchObject({ data: [data[0]], total: 4 });
  });
});
