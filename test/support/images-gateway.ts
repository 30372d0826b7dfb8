import { type FilesGateway, startFilesGateway } from "./files-gateway.ts";
import { image } from "./image-heads.ts";
import { type ImageUpstream, startImageUpstream } from "./image-upstream.ts";

export interface ImagesGateway extends FilesGateway {
  /** The provider of `gpt-image-1` and `dall-e-3`, and of `images/one`. */
  readonly upstream: ImageUpstream;
  /** That `images/one` falls back to. */
  readonly second: ImageUpstream;
  generate(body: object): Promise<Response>;
  /** Sends a form: texts, and files that are lists of bytes. */
  form(path: "edits" | "variations", parts: readonly FormPart[]): Promise<Response>;
  /** What the organization was charged since, in nano-USD with the fee, the newest last. */
  charges(): Promise<Charge[]>;
}

export type FormPart = readonly [name: string, value: string | Uint8Array];

interface Charge {
  readonly usd: number;
  readonly description: string;
  readonly quantities: Record<string, number> | null;
  readonly estimated: boolean;
}

/** Some bytes of an image of this size. */
export const picture = (width: number, height: number): Buffer<ArrayBuffer> =>
  Buffer.from(image("png", width, height));

/** A provider's answer in OpenAI's form. */
export const imageList = (images: readonly Uint8Array[], more: object = {}): Response =>
  Response.json({
    created: 1,
    data: images.map((bytes) => ({ b64_json: Buffer.from(bytes).toString("base64") })),
    ...more,
  });

const FEE = 1.04;
const NANO_PER_USD = 1e9;

/** A gateway on the plan "free", whose fee is 4 %, with two image providers of OpenAI's wire. */
export async function startImagesGateway(
  environment: Record<string, string> = {},
): Promise<ImagesGateway> {
  const upstream = startImageUpstream();
  const second = startImageUpstream();
  const provider = (id: string, { origin }: ImageUpstream, type = "openai") => ({
    id,
    type,
    base_url: `${origin}/v1`,
    api_key: "sk-test",
  });
  const gateway = await startFilesGateway("disk", {
    configuration: {
      providers: [
        provider("openai", upstream),
        provider("first", upstream, "openai-compatible"),
        provider("second", second, "openai-compatible"),
      ],
      models: [
        {
          id: "images/one",
          category: "image",
          cost_per_image: 0.04,
          endpoints: [
            { provider: "first", model: "one" },
            { provider: "second", model: "one" },
          ],
        },
        {
          id: "images/tokens",
          category: "image",
          context_length: 32_000,
          max_output_tokens: 8_000,
          input_cost_per_token: 5e-6,
          output_cost_per_token: 4e-5,
          endpoints: [{ provider: "openai", model: "gpt-image-1" }],
        },
        {
          id: "images/old",
          category: "image",
          cost_per_image: 0.04,
          image_prices: [
            { size: "1024x1024", quality: "standard", cost_per_image: 0.04 },
            { size: "1024x1792", quality: "standard", cost_per_image: 0.08 },
            { size: "1024x1024", quality: "hd", cost_per_image: 0.08 },
            { size: "1024x1792", quality: "hd", cost_per_image: 0.12 },
          ],
          endpoints: [{ provider: "openai", model: "dall-e-3" }],
        },
      ],
    },
    environment: {
      GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
      GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
      ...environment,
    },
  });
  return {
    ...gateway,
    upstream,
    second,
    generate: (body) =>
      gateway.request("POST", "/v1/images/generations", {
        model: "images/one",
        prompt: "a boat",
        ...body,
      }),
    form(path, parts) {
      const form = new FormData();
      for (const [name, value] of parts) {
        if (typeof value === "string") form.append(name, value);
        else form.append(name, new File([new Uint8Array(value)], "upload.bin"));
      }
      return fetch(`${gateway.baseUrl}/v1/images/${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${gateway.secretKey}` },
        body: form,
      });
    },
    async charges() {
      const rows = await gateway.sql<
        {
          amount_nano: bigint;
          description: string;
          quantities: Record<string, number> | null;
          estimated: boolean;
        }[]
      >`SELECT amount_nano, description, quantities, estimated FROM transactions
        WHERE type = 'usage' ORDER BY id`;
      return rows.map(({ amount_nano: nano, ...charge }) => ({
        ...charge,
        usd: Number((-Number(nano) / NANO_PER_USD / FEE).toFixed(9)),
      }));
    },
    async stop() {
      await gateway.stop();
      await upstream.stop();
      await second.stop();
    },
  };
}
