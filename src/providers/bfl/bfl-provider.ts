import type { Clock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import { imageFieldsOf } from "../image-fields.ts";
import { dimensionsOf, imageFormOf, ratioOfSize } from "../image-models.ts";
import { type Provider, ProviderFailure, type ProviderSettings } from "../interface.ts";
import type { GeneratedImages, ImageCall } from "../media.ts";
import { failureOfStatus } from "../openai/failure-mapping.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { FileInJson, jsonWithFiles } from "../transport/json-with-files.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import { untilDone } from "../transport/polling.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";

interface BflDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
}

/**
 * Returns a provider of Black Forest Labs (https://docs.bfl.ai). A request starts a task, and its polling URL
 * returns the image for ten minutes. Throws if the key cannot be sent.
 */
export function createBflProvider(
  settings: ProviderSettings,
  { clock, httpClient }: BflDependencies,
): Provider {
  const { id, type, baseUrl, apiKey } = settings;
  if (apiKey !== undefined) assertKeyIsCarried(id, apiKey);
  const headers = { ...JSON_HEADERS, ...(apiKey !== undefined && { "x-key": apiKey }) };
  const wire = new HttpJsonProvider({ settings, headers, clock, httpClient, failureOfStatus });
  const api = { wire, headers, type, baseUrl, clock };
  return {
    image: (call) => bflImage(api, call),
    imageFields: imageFieldsOf(type),
    checkKey: () => checkKeyByModelList(httpClient, endpointUrl(baseUrl, "/credits"), headers),
  };
}

interface BflApi {
  readonly wire: HttpJsonProvider;
  readonly headers: Readonly<Record<string, string>>;
  readonly type: string;
  readonly baseUrl: string;
  readonly clock: Clock;
}

async function bflImage(api: BflApi, call: ImageCall): Promise<GeneratedImages> {
  const { wire, headers, baseUrl, clock } = api;
  const signal = call.abortNotice ?? call.signal;
  const url = endpointUrl(baseUrl, `/${encodeURIComponent(call.model)}`);
  const body = jsonWithFiles(requestBody(call, api.type));
  const task = await wire.object({ method: "POST", url, headers, body }, call);
  const poll = { method: "GET", url: pollingUrlOf(task, baseUrl), headers, body: "" };
  const image = await untilDone(
    async () => imageOrFailure(await wire.object(poll, call)),
    signal,
    clock,
  );
  return { kind: "images", images: [{ data: { url: image } }], usage: undefined };
}

/** Returns the request body. The first image is `input_image`, the second `input_image_2`. */
function requestBody(call: ImageCall, type: string): Readonly<Record<string, unknown>> {
  const { model, modelId = model, size, aspectRatio = ratioOfSize(size), images } = call;
  const usesRatio = imageFormOf(type, { model, modelId })?.takes.aspect_ratio !== undefined;
  const inputs = images.map((file, index) => [
    `input_image${index === 0 ? "" : `_${index + 1}`}`,
    new FileInJson(file),
  ]);
  return {
    ...call.fields,
    prompt: call.prompt,
    seed: call.seed,
    output_format: call.outputFormat,
    ...(usesRatio ? { aspect_ratio: aspectRatio } : dimensionsOf(size)),
    ...Object.fromEntries(inputs),
  };
}

/**
 * Returns the polling URL of a task. The documentation demands: "always use the polling_url returned", which
 * is that of the task's region. The gateway sends the key there, so the URL has to be the provider's.
 */
function pollingUrlOf(
  { id, polling_url: pollingUrl }: Readonly<Record<string, unknown>>,
  baseUrl: string,
): string {
  if (typeof pollingUrl === "string") {
    const url = URL.parse(pollingUrl);
    const isOfProvider =
      url?.origin === new URL(baseUrl).origin ||
      (url?.protocol === "https:" && /(?:^|\.)bfl\.(?:ai|ml)$/.test(url.hostname));
    if (isOfProvider) return pollingUrl;
    throw brokenAnswer("a task URL outside the provider's API");
  }
  if (typeof id !== "string" || id === "") throw brokenAnswer("no task");
  return `${endpointUrl(baseUrl, "/get_result")}?id=${encodeURIComponent(id)}`;
}

const RUNNING: ReadonlySet<unknown> = new Set(["Pending", "Queued", "Processing"]);
/** Task statuses of the safety filter: https://docs.bfl.ai/api_integration/errors */
const MODERATED: ReadonlySet<unknown> = new Set(["Request Moderated", "Content Moderated"]);

/** Returns the URL of the image, a failure, or undefined while the task runs. */
function imageOrFailure(
  task: Readonly<Record<string, unknown>>,
): string | ProviderFailure | undefined {
  const { status, result } = task;
  if (RUNNING.has(status)) return undefined;
  const statusText = typeof status === "string" ? status : "no status";
  if (MODERATED.has(status)) {
    return new ProviderFailure("content_policy", `The provider rejected the image: ${statusText}.`);
  }
  if (status !== "Ready") return brokenAnswer(`a failed task: ${statusText.slice(0, 200)}`);
  const { sample } = isFields(result) ? result : {};
  return typeof sample === "string" && sample !== "" ? sample : brokenAnswer("no image");
}
