import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expectError } from "../support/error-envelope.ts";
import {
  type ImagesGateway,
  imageList,
  picture,
  startImagesGateway,
} from "../support/images-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";

interface Answer {
  readonly created: number;
  readonly data: {
    readonly url?: string;
    readonly b64_json?: string;
    readonly revised_prompt?: string;
  }[];
  readonly size?: string;
  readonly usage: { readonly images: number; readonly cost: number };
}

const BOAT = picture(1024, 1024);

let gateway: ImagesGateway;
let charged = 0;
beforeAll(async () => {
  gateway = await startImagesGateway();
});
afterAll(() => gateway.stop());
beforeEach(async () => {
  gateway.upstream.answer = () => imageList([BOAT]);
  gateway.second.answer = () => new Response("down", { status: 500 });
  gateway.upstream.asked.length = 0;
  gateway.second.asked.length = 0;
  charged = (await gateway.charges()).length;
});

const errorOf = async (response: Response, code: string) =>
  (await expectError(response, 400, code)).error;
const newCharges = async () => (await gateway.charges()).slice(charged);
const bytesAt = async (url: string) => Buffer.from(await (await fetch(url)).arrayBuffer());
const answerOf = async (response: Response): Promise<Answer> => {
  expect(response.status).toBe(200);
  return (await response.json()) as Answer;
};

/** Where the provider keeps an image for a while. */
function keptAt(path: string, answer: () => Response): string {
  gateway.upstream.answer = ({ path: asked }) =>
    asked === path
      ? answer()
      : Response.json({ created: 1, data: [{ url: gateway.upstream.origin + path }] });
  return gateway.upstream.origin + path;
}

describe("images come in the form that was asked for", () => {
  test("as links by default, which need no key and lead to the very bytes", async () => {
    const { data, size, usage } = await answerOf(await gateway.generate({}));
    expect(data).toEqual([
      {
        url: expect.stringContaining(`${gateway.baseUrl}/v1/media/media_`),
        revised_prompt: "a boat",
      },
    ]);
    expect(size).toBe("1024x1024");
    expect(usage).toMatchObject({ images: 1, cost: 0.0416 });
    const image = await fetch(data[0]!.url!);
    expect(image.headers.get("content-type")).toBe("image/png");
    expect(Buffer.from(await image.arrayBuffer())).toEqual(BOAT);
    // They are no files of the organization.
    const files = await (await gateway.request("GET", "/v1/files")).json();
    expect(files).toMatchObject({ data: [] });
    expect(await gateway.sql`SELECT 1 FROM file_usage WHERE used_bytes > 0`).toHaveLength(0);
  });

  test("in base64 where that is wanted, whatever the provider gives", async () => {
    const own = await answerOf(await gateway.generate({ response_format: "b64_json" }));
    expect(own.data[0]).toEqual({ b64_json: BOAT.toString("base64"), revised_prompt: "a boat" });
    keptAt("/kept.png", () => new Response(new Uint8Array(BOAT)));
    const fetched = await answerOf(await gateway.generate({ response_format: "b64_json" }));
    expect(fetched.data[0]!.b64_json).toBe(BOAT.toString("base64"));
  });

  test("of GPT Image in both forms where none is asked for, and else in the one", async () => {
    const generate = async (fields: object) =>
      (await answerOf(await gateway.generate({ model: "images/tokens", ...fields }))).data[0]!;
    const b64_json = BOAT.toString("base64");
    for (const open of [{}, { response_format: null }]) {
      const both = await generate(open);
      expect(both).toEqual({ url: expect.any(String), b64_json, revised_prompt: "a boat" });
      expect(await bytesAt(both.url!)).toEqual(BOAT);
    }
    expect(await generate({ response_format: "url" })).not.toHaveProperty("b64_json");
    expect(await generate({ response_format: "b64_json" })).not.toHaveProperty("url");
    const { data } = await answerOf(await gateway.generate({ model: "images/old" }));
    expect(data[0]).not.toHaveProperty("b64_json");
  });

  test("as links of the gateway, not of the provider, whose own may live shorter or longer", async () => {
    const theirs = keptAt("/kept.png", () => new Response(new Uint8Array(BOAT)));
    const { data } = await answerOf(await gateway.generate({}));
    expect(data[0]!.url).not.toBe(theirs);
    expect(await bytesAt(data[0]!.url!)).toEqual(BOAT);
  });

  test("with the prompt as the provider rewrote it", async () => {
    gateway.upstream.answer = () =>
      Response.json({
        created: 1,
        data: [{ b64_json: BOAT.toString("base64"), revised_prompt: 'A "red" boat — ✓' }],
      });
    for (const response_format of ["url", "b64_json"]) {
      const { data } = await answerOf(await gateway.generate({ response_format }));
      expect(data[0]!.revised_prompt).toBe('A "red" boat — ✓');
    }
  });

  test("no more of them than were asked for, and those that came are charged", async () => {
    gateway.upstream.answer = () => imageList(Array.from({ length: 100 }, () => BOAT));
    expect((await answerOf(await gateway.generate({}))).data).toHaveLength(1);
    gateway.upstream.answer = () => imageList([BOAT, picture(8, 8)]);
    const { data } = await answerOf(await gateway.generate({ n: 3, response_format: "b64_json" }));
    expect(data).toHaveLength(2);
    expect((await newCharges()).map(({ usd }) => usd)).toEqual([0.04, 0.08]);
  });
});

describe("an answer that is none is the provider's fault, costs nothing, and is tried elsewhere", () => {
  const says = (body: unknown) => () => {
    gateway.upstream.answer = () => Response.json(body);
  };
  const b64 = (value: unknown) => says({ created: 1, data: [{ b64_json: value }] });
  const html = Buffer.from("<html><svg></html>").toString("base64");
  test.each([
    ["no image", says({ created: 1, data: [] })],
    ["base64 that is none", b64(`${BOAT.toString("base64").slice(0, -4)}*=!=`)],
    ["base64 with line breaks", b64(`${BOAT.toString("base64").slice(0, 40)}\n`)],
    ["base64 of HTML", b64(html)],
    ["empty base64", b64("")],
    ["a number in its place", b64(5)],
    ["an address of a file", says({ data: [{ url: "file:///etc/passwd" }] })],
    ["an address that is none", says({ data: [{ url: "nowhere" }] })],
    ["an address that answers 404", () => keptAt("/gone", () => new Response("", { status: 404 }))],
    ["an address of HTML", () => keptAt("/page", () => new Response("<html>"))],
    ["an address without end", () => keptAt("/long", endless)],
    ["an address that leads to itself", () => keptAt("/loop", () => redirect("/loop"))],
    ["an address that leads to another scheme", () => keptAt("/ftp", () => redirect("ftp://x/y"))],
  ])("%s", async (_, begin) => {
    begin();
    await expectError(await gateway.generate({}), 502, "provider_error");
    expect(await newCharges()).toEqual([]);
    gateway.second.answer = () => imageList([BOAT]);
    const saved = await gateway.generate({});
    expect(saved.status).toBe(200);
    expect(saved.headers.get("x-gateway-provider")).toBe("second");
    expect((await newCharges()).map(({ usd }) => usd)).toEqual([0.04]);
  });

  test("an address that may not be reached is asked for once, and one that fails once more", async () => {
    const generations = () =>
      gateway.upstream.asked.filter(({ path }) => path.endsWith("/generations")).length;
    gateway.upstream.answer = () => Response.json({ data: [{ url: "https://10.0.0.1/x.png" }] });
    await expectError(await gateway.generate({ model: "images/old" }), 502, "provider_error");
    expect(generations()).toBe(1);
    let tries = 0;
    keptAt("/late.png", () =>
      ++tries === 1 ? new Response("", { status: 503 }) : new Response(new Uint8Array(BOAT)),
    );
    expect((await gateway.generate({ model: "images/old" })).status).toBe(200);
    expect(generations()).toBe(2);
  });

  test("a refusal for its content is 400, and no other provider is tried", async () => {
    const error = { code: "content_policy_violation", message: "Your request was rejected." };
    gateway.upstream.answer = () => Response.json({ error }, { status: 400 });
    const refused = await errorOf(await gateway.generate({}), "content_policy_violation");
    expect(refused.message).toBe("Your request was rejected.");
    expect(gateway.second.asked).toHaveLength(0);
    expect(await newCharges()).toEqual([]);
  });
});

function redirect(location: string): Response {
  return new Response(null, { status: 302, headers: { location } });
}

/** Far more than an image may have; how much of it is read shows that the rest is not. */
function endless(): Response {
  let sent = 0;
  return new Response(
    new ReadableStream({
      pull(controller) {
        sent += 1024 * 1024;
        if (sent > 512 * 1024 * 1024) throw new Error("all of it was read");
        controller.enqueue(new Uint8Array(1024 * 1024));
      },
    }),
  );
}

describe("what a request asks for", () => {
  test.each([
    [{ prompt: "" }, "prompt"],
    [{ prompt: undefined }, "prompt"],
    [{ n: 0 }, "n"],
    [{ n: 11 }, "n"],
    [{ n: "2" }, "n"],
    [{ size: "big" }, "size"],
    [{ size: "0x100" }, "size"],
    [{ size: "1024X1024" }, "size"],
    [{ quality: "best" }, "quality"],
    [{ response_format: "png" }, "response_format"],
    [{ style: "baroque" }, "style"],
    [{ style: "" }, "style"],
    [{ style: 5 }, "style"],
    [{ output_compression: 101 }, "output_compression"],
    [{ partial_images: 4 }, "partial_images"],
    [{ aspect_ratio: "16/9" }, "aspect_ratio"],
    [{ stream: "yes" }, "stream"],
  ])("is checked: %p", async (fields, param) => {
    expect((await errorOf(await gateway.generate(fields), "invalid_body")).param).toBe(param);
    expect(gateway.upstream.asked).toHaveLength(0);
  });

  test("is within the model's own limit of characters", async () => {
    const body = { model: "images/old", prompt: "x".repeat(4_001) };
    const error = await errorOf(await gateway.generate(body), "invalid_body");
    expect(error).toMatchObject({ param: "prompt", message: expect.stringContaining("4000") });
    expect((await gateway.generate({ ...body, prompt: "x".repeat(4_000) })).status).toBe(200);
    // Each is one character, and two units of UTF-16.
    expect((await gateway.generate({ ...body, prompt: "🚢".repeat(4_000) })).status).toBe(200);
    const longer = await gateway.generate({ ...body, prompt: "🚢".repeat(4_001) });
    expect((await errorOf(longer, "invalid_body")).param).toBe("prompt");
  });

  test.each([
    [{ n: 2 }, "n"],
    [{ size: "333x333" }, "size"],
    [{ background: "transparent" }, "background"],
    [{ aspect_ratio: "16:9" }, "aspect_ratio"],
  ])("is refused where no provider has it: %p", async (fields, param) => {
    const response = await gateway.generate({ model: "images/old", ...fields });
    expect((await errorOf(response, "unsupported_parameter")).param).toBe(param);
  });

  test("may be the style that is usual, of a model without styles too", async () => {
    for (const more of [{}, { provider: { require_parameters: true } }]) {
      const body = { model: "images/tokens", style: "vivid", ...more };
      const response = await gateway.generate(body);
      expect(response.status).toBe(200);
      expect(response.headers.has("x-gateway-dropped-parameters")).toBe(false);
      expect(gateway.upstream.asked.at(-1)!.body).not.toHaveProperty("style");
    }
    const natural = await gateway.generate({ model: "images/tokens", style: "natural" });
    expect((await errorOf(natural, "unsupported_parameter")).param).toBe("style");
    for (const style of ["vivid", "natural"]) {
      expect((await gateway.generate({ model: "images/old", style })).status).toBe(200);
      expect(gateway.upstream.asked.at(-1)!.body).toMatchObject({ style });
    }
  });

  test("is left out and listed where it is a hint", async () => {
    const response = await gateway.generate({ model: "images/old", seed: 7, moderation: "low" });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe("seed, moderation");
    expect(gateway.upstream.asked[0]!.body).not.toHaveProperty("seed");
    const strict = { model: "images/old", seed: 7, provider: { require_parameters: true } };
    await expectError(await gateway.generate(strict), 400, "unsupported_parameter");
  });

  test.each(["num_images", "width", "steps", "samples"])(
    "cannot raise the cost by another name: %s",
    async (field) => {
      const response = await gateway.generate({ [field]: 8 });
      expect((await errorOf(response, "unsupported_parameter")).param).toBe(field);
    },
  );

  test("is not served by models that do something else", async () => {
    for (const path of ["edits", "variations"] as const) {
      const parts = [
        ["model", "images/old"],
        ["prompt", "x"],
        ["image", BOAT],
      ] as const;
      const sent = parts.filter(([name]) => path === "edits" || name !== "prompt");
      await expectError(await gateway.form(path, sent), 400, "unsupported_model");
    }
    await expectError(await gateway.generate({ model: "sandbox/chat" }), 400, "unsupported_model");
  });
});

test("the same call with an idempotency key is made once, and answers with the same link", async () => {
  const body = { metadata: { idempotency_key: "boat-1" } };
  const first = await answerOf(await gateway.generate(body));
  const again = await gateway.generate(body);
  expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
  expect((await answerOf(again)).data).toEqual(first.data);
  expect(gateway.upstream.asked).toHaveLength(1);
  expect(await newCharges()).toHaveLength(1);
});

describe("the price of an image follows its size and quality", () => {
  const TALL = picture(1024, 1792);
  test.each([
    ["as asked", { size: "1024x1792", quality: "hd" }, TALL, {}, 0.12],
    ["of the default", {}, BOAT, {}, 0.04],
    ["as the image shows", {}, TALL, {}, 0.08],
    ["as the provider says", {}, BOAT, { size: "1024x1792", quality: "hd" }, 0.12],
  ] as const)("%s", async (_, asked, image, said, usd) => {
    gateway.upstream.answer = () => imageList([image], said);
    const response = await gateway.generate({ model: "images/old", ...asked });
    expect(response.status).toBe(200);
    expect(Number(response.headers.get("x-gateway-cost"))).toBeCloseTo(usd * 1.04, 9);
    expect((await newCharges()).map((charge) => charge.usd)).toEqual([usd]);
  });

  test("and there has to be money for the dearest that may come", async () => {
    const { secretKey: key } = await gateway.addOrganization({ creditUsd: 0.1 });
    const ask = (body: object) =>
      gateway.request(
        "POST",
        "/v1/images/generations",
        { model: "images/old", prompt: "x", ...body },
        { key },
      );
    await expectError(await ask({}), 402, "insufficient_credits");
    await expectError(await ask({ quality: "hd" }), 402, "insufficient_credits");
    await expectError(await ask({ size: "1024x1792", quality: "hd" }), 402, "insufficient_credits");
    expect(gateway.upstream.asked).toHaveLength(0);
    expect((await ask({ size: "1024x1024", quality: "hd" })).status).toBe(200);
  });
});

test("a body that is longer than any request for images is not read", async () => {
  const response = await gateway.generate({ unknown: "x".repeat(1024 * 1024) });
  await expectError(response, 413, "payload_too_large");
});

test("a client that leaves before there is an image pays nothing, and its provider is stopped", async () => {
  const left = new AbortController();
  let isStopped = false;
  const body = new ReadableStream({
    pull: () => new Promise(() => {}),
    cancel() {
      isStopped = true;
    },
  });
  gateway.upstream.answer = () => new Response(body);
  const init = { signal: left.signal };
  const asking = gateway.request(
    "POST",
    "/v1/images/generations",
    { model: "images/one", prompt: "x" },
    init,
  );
  await until("the provider is asked", () => gateway.upstream.asked.length === 1);
  left.abort();
  await expect(asking).rejects.toThrow();
  await until("the provider is stopped", () => isStopped);
  expect(await newCharges()).toEqual([]);
  await expectBooksClosed(gateway);
});

test("an image that cannot be stored is not charged", async () => {
  const other = await startImagesGateway();
  other.upstream.answer = () => imageList([BOAT]);
  // Where the folder should be, there is something else.
  await rm(join(other.dataDir, "files"), { recursive: true, force: true });
  await writeFile(join(other.dataDir, "files"), "");
  await expectError(await other.generate({}), 503, "overloaded");
  expect(await other.charges()).toEqual([]);
  expect((await other.generate({ response_format: "b64_json" })).status).toBe(200);
  await expectBooksClosed(other);
  await other.stop();
});
