import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI, { toFile } from "openai";
import { kindOfImage } from "../../src/lib/image-header.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";

let gateway: TestGateway;
let client: OpenAI;
beforeAll(async () => {
  gateway = await startTestGateway();
  client = new OpenAI({
    baseURL: `${gateway.baseUrl}/v1`,
    apiKey: gateway.secretKey,
    maxRetries: 0,
  });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
});

const asked = { model: "sandbox/image", prompt: "a boat", size: "256x256" } as const;
const SIZE = { width: 256, height: 256 };
/** 0.001 USD and the plan's fee. */
const ONE_NANO = 1_040_000n;

async function fetched(url: string | undefined): Promise<Buffer> {
  const response = await fetch(url!);
  expect(response.status).toBe(200);
  return Buffer.from(await response.arrayBuffer());
}

const decoded = (base64: string | undefined) => Buffer.from(base64!, "base64");

async function picture(): Promise<Buffer> {
  const { data } = await client.images.generate({ ...asked, response_format: "b64_json" });
  return decoded(data![0]!.b64_json);
}

test("generate: links, base64 and formats, several at a time, each charged", async () => {
  const { data: linked, request_id } = await client.images
    .generate({ ...asked, n: 3 })
    .withResponse();
  expect(linked.data).toHaveLength(3);
  const images = await Promise.all(linked.data!.map(({ url }) => fetched(url)));
  for (const image of images) {
    expect(kindOfImage(image)).toMatchObject({ contentType: "image/png", ...SIZE });
  }
  expect(new Set(images.map((image) => image.toString("base64"))).size).toBe(3);
  expect(linked.data![0]!.revised_prompt).toContain("a boat");
  expect((await billOf(gateway, request_id!))!.chargeNano).toBe(3n * ONE_NANO);
  const encoded = await client.images.generate({
    ...asked,
    response_format: "b64_json",
    output_format: "webp",
  });
  expect(kindOfImage(decoded(encoded.data![0]!.b64_json))).toMatchObject({
    contentType: "image/webp",
  });
  expect(encoded).toMatchObject({ size: "256x256", output_format: "webp" });
});

test("generate: a stream of partial images", async () => {
  const stream = await client.images.generate({ ...asked, stream: true, partial_images: 2 });
  const events: OpenAI.ImageGenStreamEvent[] = [];
  for await (const event of stream) events.push(event);
  expect(events.map(({ type }) => type)).toEqual([
    "image_generation.partial_image",
    "image_generation.partial_image",
    "image_generation.completed",
  ]);
  for (const event of events) expect(kindOfImage(decoded(event.b64_json))).toMatchObject(SIZE);
  expect(events.at(-1)).toMatchObject({ usage: { images: 1, cost: 0.00104 } });
});

test("edit: one image and several, with a mask, whole and streamed", async () => {
  const bytes = await picture();
  const image = () => toFile(bytes, "boat.png", { type: "image/png" });
  const one = await client.images.edit({ ...asked, image: await image(), mask: await image() });
  expect(kindOfImage(await fetched(one.data![0]!.url))).toMatchObject(SIZE);
  const several = await client.images.edit({
    ...asked,
    image: [await image(), await image()],
    n: 2,
  });
  expect(several.data).toHaveLength(2);
  const stream = await client.images.edit({
    ...asked,
    image: await image(),
    stream: true,
    partial_images: 1,
  });
  const types: string[] = [];
  for await (const { type } of stream) types.push(type);
  expect(types).toEqual(["image_edit.partial_image", "image_edit.completed"]);
});

test("createVariation", async () => {
  const image = await toFile(await picture(), "boat.png", { type: "image/png" });
  const { data } = await client.images.createVariation({ ...asked, image, n: 2 });
  for (const { url } of data!) expect(kindOfImage(await fetched(url))).toMatchObject(SIZE);
});

test("errors: a safety filter, a prompt that is too long, a file that is no image", async () => {
  const failure = async (work: PromiseLike<unknown>) => {
    const error = await Promise.resolve(work).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(OpenAI.BadRequestError);
    const { code, param } = error as InstanceType<typeof OpenAI.BadRequestError>;
    return { code, param };
  };
  const refused = client.images.generate({ ...asked, model: "sandbox/image-refusal" });
  expect((await failure(refused)).code).toBe("content_policy_violation");
  const long = client.images.generate({ ...asked, prompt: "x".repeat(4_001) });
  expect(await failure(long)).toEqual({ code: "invalid_body", param: "prompt" });
  const page = await toFile(Buffer.from("<html></html>"), "boat.png", { type: "image/png" });
  const edit = client.images.edit({ ...asked, image: page });
  expect(await failure(edit)).toEqual({ code: "invalid_body", param: "image" });
});
