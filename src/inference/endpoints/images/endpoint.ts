import { errorEnvelope } from "../../../http/error-response.ts";
import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import type { GatewayError } from "../../../lib/errors.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import type { Usage } from "../../../lib/usage.ts";
import { ProviderFailure } from "../../../providers/interface.ts";
import type { ImageCall } from "../../../providers/media.ts";
import type { AdmittedCall, ProviderCall } from "../../call/call.ts";
import type { AnswerFacts, OpenedStream, PaidEndpoint, StreamForm } from "../../call/endpoint.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import type { MediaLinks } from "../../media-links/media-links.ts";
import { imagesBound, imagesUsage } from "./cost-bound.ts";
import { type DecodedImages, type FetchImage, imagesOf } from "./decoded-images.ts";
import { callForImages } from "./image-call.ts";
import { readerOfWhole, StreamedImages } from "./image-stream.ts";
import { addsBase64, planImages } from "./plan-images.ts";
import { imagesBody, type RenderedImages, renderImages, usageBody } from "./render-images.ts";
import { type AcceptedImages, acceptForm, acceptGeneration } from "./request.ts";

type AdmittedImages = AdmittedCall<AcceptedImages>;

export interface ImageServices {
  readonly clock: Clock;
  readonly media: Pick<MediaLinks, "store">;
  readonly fetchImage: FetchImage;
  /**
   * The public URL of the gateway, without a slash at the end. If undefined, links use the host of each
   * request.
   */
  readonly publicUrl: string | undefined;
}

/** Generated images with the rendered answer. If the answer has links, the images are stored. */
interface ImagesAnswer extends DecodedImages {
  readonly rendered: RenderedImages;
  readonly created: number;
}

const TITLES: Readonly<Record<ImageCall["task"], string>> = {
  generate: "Image generation",
  edit: "Image edit",
  vary: "Image variation",
};

/** One of the three image endpoints (spec 4.8). */
export class ImagesEndpoint implements PaidEndpoint<AcceptedImages, ImagesAnswer> {
  readonly categories = ["image"] as const;
  readonly capability = "image";
  readonly route: string;
  readonly title: string;
  readonly stream: StreamForm<AcceptedImages>;
  readonly #task: ImageCall["task"];
  readonly #services: ImageServices;

  constructor(task: ImageCall["task"], path: string, services: ImageServices) {
    this.#task = task;
    this.#services = services;
    this.route = `POST ${path}`;
    this.title = TITLES[task];
    this.stream = new ImageStreamForm(services);
  }

  accept(body: unknown, headers: Headers): AcceptedImages {
    const { publicUrl } = this.#services;
    return this.#task === "generate"
      ? acceptGeneration(body, headers, publicUrl)
      : acceptForm(this.#task, body, headers, publicUrl);
  }

  plan(request: AcceptedImages, plan: AdmittedImages["plan"]): AdmittedImages["plan"] {
    return planImages(request, plan);
  }

  bound(request: AcceptedImages, terms: ModelTerms) {
    return imagesBound(request, terms);
  }

  /** Returns 0. A request has no output limit, so the hold cannot be lowered. */
  statedLimit(): number {
    return 0;
  }

  /** Resolves after the linked images are durable, and so before the charge. */
  async call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedImages,
  ): Promise<ImagesAnswer> {
    const { media, clock } = this.#services;
    const { request, hold } = admitted;
    const made = await wholeImages(call, candidate, admitted, this.#services);
    const { linkBase } = request;
    const links =
      linkBase === undefined
        ? undefined
        : (await media.store(hold.organizationId, made.images)).map((id) => linkBase + id);
    const images = admitted.guard?.screensOutput
      ? made.images.map((image) => ({ ...image, revisedPrompt: undefined }))
      : made.images;
    const rendered = await renderImages(images, links, request, addsBase64(request, candidate));
    return { ...made, rendered, created: secondsNow(clock) };
  }

  usage({ images, facts, reported }: ImagesAnswer, request: AcceptedImages, terms: ModelTerms) {
    const made = { images: images.length, partials: 0, facts, reported };
    return imagesUsage(made, request, terms);
  }

  answer({ rendered, created, facts }: ImagesAnswer, _: AcceptedImages, charged: AnswerFacts) {
    return imagesBody(rendered, created, facts, charged);
  }
}

/** Writes server-sent events in OpenAI's form. The last image is sent after its charge. */
class ImageStreamForm implements StreamForm<AcceptedImages, StreamedImages> {
  readonly contentType = "text/event-stream; charset=utf-8";
  readonly keepalive = ": keepalive\n\n";
  readonly #services: ImageServices;

  constructor(services: ImageServices) {
    this.#services = services;
  }

  choices({ count }: AcceptedImages): number {
    return count;
  }

  async open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedImages,
    output: ByteBuffer,
  ): Promise<OpenedStream<StreamedImages>> {
    const { request } = admitted;
    const { clock, fetchImage } = this.#services;
    const generated = await callForImages(call, candidate, admitted);
    const reader =
      generated.kind === "image-events"
        ? generated.reader()
        : readerOfWhole(await imagesOf(generated, request.count, fetchImage, call));
    return { reader, answer: new StreamedImages(request, output, secondsNow(clock)) };
  }

  usage({ result }: StreamedImages, request: AcceptedImages, terms: ModelTerms): Usage {
    return imagesUsage(result, request, terms);
  }

  ending(answer: StreamedImages, _: AcceptedImages, { usage, costUsd }: AnswerFacts): string {
    return answer.ending(usageBody(usage, costUsd));
  }

  failure(error: GatewayError, requestId: string): string {
    return `data: ${latin1OfText(JSON.stringify(errorEnvelope(error, requestId)))}\n\n`;
  }
}

async function wholeImages(
  call: ProviderCall,
  candidate: Candidate,
  admitted: AdmittedImages,
  { fetchImage }: ImageServices,
): Promise<DecodedImages> {
  const generated = await callForImages(call, candidate, admitted);
  if (generated.kind === "images") {
    return imagesOf(generated, admitted.request.count, fetchImage, call);
  }
  await generated.reader().cancel();
  throw new ProviderFailure(
    "unavailable",
    "the provider streams an answer that must not be streamed",
  );
}
