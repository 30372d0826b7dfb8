import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { image } from "../support/image-heads.ts";
import {
  type FormPart,
  type ImagesGateway,
  imageList,
  picture,
  startImagesGateway,
} from "../support/images-gateway.ts";

const BOAT = picture(64, 64);
const SEA = Buffer.from(image("jpeg", 640, 480));
const MASK = picture(64, 64);

let gateway: ImagesGateway;
let charged = 0;
beforeAll(async () => {
  gateway = await startImagesGateway();
});
afterAll(() => gateway.stop());
beforeEach(async () => {
  gateway.upstream.answer = () => imageList([picture(32, 32)]);
  gateway.upstream.asked.length = 0;
  charged = (await gateway.charges()).length;
});

const edit = (...parts: FormPart[]) =>
  gateway.form("edits", [["model", "images/one"], ["prompt", "in red"], ...parts]);
const vary = (...parts: FormPart[]) =>
  gateway.form("variations", [["model", "images/one"], ...parts]);
const newCharges = async () => (await gateway.charges()).slice(charged);

describe("an edit", () => {
  test("sends several images and a mask to the provider, each as its bytes say", async () => {
    const response = await edit(["image[]", BOAT], ["image[]", SEA], ["mask", MASK], ["n", "1"]);
    expect(response.status).toBe(200);
    const { data } = (await response.json()) as { data: { url: string }[] };
    expect((await fetch(data[0]!.url)).status).toBe(200);
    const [{ path, body }] = gateway.upstream.asked as [(typeof gateway.upstream.asked)[0]];
    expect(path).toBe("/v1/images/edits");
    const sent = body as [string, string][];
    const files = sent.filter(([name]) => name.startsWith("image") || name === "mask");
    expect(files.map(([name, file]) => [name, ...file.split(" ")])).toEqual([
      ["image[]", expect.stringContaining(".png"), "image/png", BOAT.toString("base64")],
      ["image[]", expect.stringContaining(".jp"), "image/jpeg", SEA.toString("base64")],
      ["mask", expect.stringContaining(".png"), "image/png", MASK.toString("base64")],
    ]);
    expect(await newCharges()).toMatchObject([
      { usd: 0.04, quantities: { images: 1, input_images: 3 } },
    ]);
  });

  test("takes a prompt of 32,000 characters, and no longer one", async () => {
    const long = (length: number) =>
      gateway.form("edits", [
        ["model", "images/one"],
        ["prompt", "é".repeat(length)],
        ["image", BOAT],
      ]);
    expect((await long(32_000)).status).toBe(200);
    await expectError(await long(32_001), 400, "invalid_body");
  });

  test.each([
    [[["image", BOAT]], "prompt", ["model", "images/one"]],
    [[["prompt", "x"]], "image", ["model", "images/one"]],
    [
      [
        ["prompt", "x"],
        ["image", BOAT],
      ],
      "model",
      ["n", "1"],
    ],
  ] as [FormPart[], string, FormPart][])(
    "needs what it is made of: %#",
    async (parts, param, other) => {
      const { error } = await expectError(
        await gateway.form("edits", [...parts, other]),
        400,
        "invalid_body",
      );
      expect(error.param).toBe(param);
    },
  );
});

describe("a variation", () => {
  test("needs no prompt, and takes one image", async () => {
    const response = await vary(["image", BOAT], ["n", "1"], ["response_format", "b64_json"]);
    expect(response.status).toBe(200);
    const { data } = (await response.json()) as { data: object[] };
    expect(data).toEqual([{ b64_json: picture(32, 32).toString("base64") }]);
    expect(gateway.upstream.asked[0]!.path).toBe("/v1/images/variations");
    await expectError(await vary(["image", BOAT], ["image", BOAT]), 400, "invalid_body");
  });
});

describe("what is no image, or a hostile one, is refused before any provider sees it", () => {
  const png = (width: number, height: number) => Buffer.from(image("png", width, height));
  const svg = `<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "${"x".repeat(100)}">]><svg>&a;</svg>`;
  test.each([
    ["a PNG that claims 100,000 × 100,000", png(100_000, 100_000)],
    ["a PNG of 16,384 × 16,384, which is too much to decode", png(16_384, 16_384)],
    ["a PNG of no pixels", png(0, 10)],
    ["a PNG cut off before its dimensions", png(10, 10).subarray(0, 18)],
    ["a JPEG without a frame", Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0, 0xff, 0xd9])],
    ["a GIF", Buffer.from(image("gif", 8, 8))],
    ["an SVG with entities", Buffer.from(svg)],
    ["HTML", Buffer.from("<html><img src=x></html>")],
    ["a zip", Buffer.from("PK\x03\x04 and so on, for some bytes more")],
    [
      "a sound in the container of WebP",
      Buffer.from("RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0"),
    ],
    ["nothing", Buffer.alloc(0)],
  ])("%s", async (_, bytes) => {
    for (const response of [await edit(["image", bytes]), await vary(["image", bytes])]) {
      const { error } = await expectError(response, 400, "invalid_body");
      expect(error.param).toBe("image");
    }
    expect(gateway.upstream.asked).toHaveLength(0);
    expect(await newCharges()).toEqual([]);
  });

  test("a mask that is no PNG, or larger than 4 MB", async () => {
    for (const mask of [SEA, Buffer.concat([MASK, Buffer.alloc(4 * 1024 * 1024)])]) {
      const { error } = await expectError(
        await edit(["image", BOAT], ["mask", mask]),
        400,
        "invalid_body",
      );
      expect(error.param).toBe("mask");
    }
  });

  test("a seventeenth image", async () => {
    const images = Array.from({ length: 17 }, (): FormPart => ["image[]", BOAT]);
    await expectError(await edit(...images), 400, "invalid_body");
  });

  test("JSON in place of the form", async () => {
    const response = await gateway.request("POST", "/v1/images/edits", { model: "images/one" });
    await expectError(response, 415, "unsupported_media_type");
  });
});
