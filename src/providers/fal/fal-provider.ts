import type { Clock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import { imageFieldsOf } from "../image-fields.ts";
import { dimensionsOf, imageFormOf, ratioOfSize } from "../image-models.ts";
import { type Provider, ProviderFailure, type ProviderSettings } from "../interface.ts";
import type { GeneratedImages, ImageCall } from "../media.ts";
import { failureOfErrorBody, failureOfStatus } from "../openai/failure-mapping.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { FileInJson, jsonWithFiles } from "../transport/json-with-files.ts";
import { untilDone } from "../transport/polling.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";

const CANCEL_TIMEOUT_MS = 5_000;

type Fields = Readonly<Record<string, unknown>>;

interface FalDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
}

/**
 * Returns a provider of fal's queue (https://docs.fal.ai/model-apis/model-endpoints/queue). A request waits
 * for a runner, and has URLs for its status, its result and its cancellation. Throws if its key cannot be
 * sent.
 */
export function createFalProvider(
  settings: ProviderSettings,
  { clock, httpClient }: FalDependencies,
): Provider {
  const { id, type, apiKey } = settings;
  if (apiKey !== undefined) assertKeyIsCarried(id, apiKey);
  const headers = {
    ...JSON_HEADERS,
    ...(apiKey !== undefined && { authorization: `Key ${apiKey}` }),
  };
  const wire = new HttpJsonProvider({ settings, headers, clock, httpClient, failureOfStatus });
  const queue = new FalQueue(settings, wire, headers, clock);
  return { image: (call) => queue.image(call), imageFields: imageFieldsOf(type) };
}

class FalQueue {
  readonly #settings: ProviderSettings;
  readonly #wire: HttpJsonProvider;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;

  constructor(
    settings: ProviderSettings,
    wire: HttpJsonProvider,
    headers: Readonly<Record<string, string>>,
    clock: Clock,
  ) {
    this.#settings = settings;
    this.#wire = wire;
    this.#headers = headers;
    this.#clock = clock;
  }

  /** Queues a request and waits for its images. Rejects with ProviderFailure. */
  async image(call: ImageCall): Promise<GeneratedImages> {
    const signal = call.abortNotice ?? call.signal;
    const queued = await this.#submit(call);
    try {
      await untilDone(() => this.#isDone(queued, call), signal, this.#clock);
    } catch (error) {
      if (signal.aborted) this.#cancel(queued);
      throw error;
    }
    return this.#imagesOf(await this.#get(queued.response_url, call));
  }

  async #submit(call: ImageCall): Promise<Fields> {
    const { baseUrl, type } = this.#settings;
    const path = call.model.split("/").map(encodeURIComponent).join("/");
    const body = jsonWithFiles(requestBody(call, type));
    const url = endpointUrl(baseUrl, `/${path}`);
    return this.#wire.object({ method: "POST", url, headers: this.#headers, body }, call);
  }

  async #isDone(queued: Fields, call: ImageCall): Promise<true | ProviderFailure | undefined> {
    const {
      status,
      error,
      error_type: code,
    } = await this.#get(this.#providerUrl(queued.status_url), call);
    if (status === "IN_QUEUE" || status === "IN_PROGRESS") return undefined;
    if (status !== "COMPLETED") return brokenAnswer("a request without a status");
    if (typeof error !== "string" || error === "") return true;
    return failureOfErrorBody({ message: error, code }, this.#wire.failureContext);
  }

  #get(address: unknown, call: ImageCall): Promise<Fields> {
    const url = this.#providerUrl(address);
    return this.#wire.object({ method: "GET", url, headers: this.#headers, body: "" }, call);
  }

  /**
   * Cancels a request in the background. A request that no client waits for would still be billed to the
   * operator.
   */
  #cancel({ cancel_url: url }: Fields): void {
    if (typeof url !== "string") return;
    const signal = AbortSignal.timeout(CANCEL_TIMEOUT_MS);
    const send = async () => {
      const request = {
        method: "PUT",
        url: this.#providerUrl(url),
        headers: this.#headers,
        body: "",
      };
      const response = await this.#wire.send(request, { signal });
      await response.body?.cancel();
    };
    send().catch(() => undefined);
  }

  /**
   * Returns the URL. Throws ProviderFailure if it is not the provider's, because the gateway sends the key
   * there.
   */
  #providerUrl(address: unknown): string {
    const url = typeof address === "string" ? URL.parse(address) : null;
    const isOfProvider = url !== null && url.origin === new URL(this.#settings.baseUrl).origin;
    if (!isOfProvider) throw brokenAnswer("a request URL outside the provider's API");
    return url.href;
  }

  #imagesOf(result: Fields): GeneratedImages {
    const { images, image, has_nsfw_concepts: flagged } = result;
    const listed = Array.isArray(images) ? images : [image];
    const flags = Array.isArray(flagged) ? flagged : [];
    const urls = listed.map((entry) => (isFields(entry) ? entry.url : undefined));
    // fal returns a black image in place of one that its filter removed.
    const accepted = urls.filter((url, index) => typeof url === "string" && flags[index] !== true);
    if (accepted.length === 0 && flags.includes(true)) {
      throw new ProviderFailure("content_policy", "The provider's filter removed the image.");
    }
    if (accepted.length === 0) throw brokenAnswer("no image");
    return {
      kind: "images",
      images: accepted.map((url) => ({ data: { url: url as string } })),
      usage: undefined,
    };
  }
}

function requestBody(call: ImageCall, type: string): Fields {
  const { model, modelId = model, size, aspectRatio = ratioOfSize(size), images } = call;
  const usesRatio = imageFormOf(type, { model, modelId })?.takes.aspect_ratio !== undefined;
  const files = images.map((file) => FileInJson.asDataUrl(file));
  // Models that accept several images have the path `…/edit`.
  const inputs = model.endsWith("/edit") ? { image_urls: files } : { image_url: files[0] };
  return {
    ...call.fields,
    prompt: call.prompt,
    num_images: call.count,
    seed: call.seed,
    output_format: call.outputFormat,
    ...(usesRatio ? { aspect_ratio: aspectRatio } : { image_size: dimensionsOf(size) }),
    ...(files.length > 0 && inputs),
  };
}
