import { textOfShared } from "../../http/read-body.ts";
import { BodyRender, type ChatRequestFields } from "../../providers/chat-body.ts";
import { exportOf, type ThreadOutcome, threadOutcome } from "../../providers/thread-work.ts";
import type { Preset } from "../definitions/definition-cache.ts";
import { type Guardrail, rulesFor } from "../guardrails/screening/guardrail.ts";
import { screenJson, textsOf } from "../guardrails/screening/screen-json.ts";
import { presetNamed } from "./fill-preset.ts";
import type { LongBodyCall, LongBodyRead } from "./long-bodies.ts";

/** The functions that a work thread needs for the long bodies of one endpoint. */
export interface LongBodyForm {
  parse(text: string): unknown;
  /** Returns the part of the request that can name a preset. Undefined if that part is the whole request. */
  bodyOf?(request: never): unknown;
  /** Throws 400 if the request does not match the schema. */
  check(request: never): void;
  /** Returns the request with the members that its preset adds. */
  fill(request: never, preset: Preset): unknown;
  /**
   * Runs the checks that follow the schema, in the order of short bodies, and returns the facts that the
   * event loop needs. Throws if a check rejects the request.
   */
  read(request: never, text: string): unknown;
  /** Returns the fields that a BodyRender receives. */
  fieldsOf(request: never, shape: never): ChatRequestFields;
}

type ReadCall = Extract<LongBodyCall, { readonly kind: "body.read" }>;
type RenderCall = Extract<LongBodyCall, { readonly kind: "body.render" }>;

function redacted(request: unknown, guardrails: readonly Guardrail[] | undefined): unknown {
  if (guardrails === undefined) return request;
  return screenJson(request, rulesFor(guardrails, "input")).value;
}

/**
 * Returns the texts of the request for moderation. Returns an empty text if no guardrail moderates the input
 * with a model.
 */
function moderatedTexts(request: unknown, guardrails: readonly Guardrail[]): string {
  const isModerated = guardrails.some(({ rules }) =>
    rules.some(({ type, on }) => type === "moderation" && on.includes("input")),
  );
  return isModerated ? textsOf(request) : "";
}

function filled(form: LongBodyForm, request: unknown, preset: Preset | undefined): unknown {
  return preset === undefined ? request : form.fill(request as never, preset);
}

/**
 * Maximum total size of the parsed requests that wait for their rendering, in bytes of their JSON. A request
 * that is no longer stored is parsed again.
 */
const MAX_PARSED_BYTES = 67_108_864;

/** Reads and renders long bodies in a work thread. Throws if a body is rejected. */
export class LongBodyWork {
  readonly #forms: Readonly<Record<string, LongBodyForm>>;
  readonly #parsed = new Map<number, { readonly request: unknown; readonly byteLength: number }>();
  #parsedBytes = 0;

  /** @param forms the forms by name, as calls name them */
  constructor(forms: Readonly<Record<string, LongBodyForm>>) {
    this.#forms = forms;
  }

  do(call: LongBodyCall): unknown {
    return call.kind === "body.render" ? this.#render(call) : this.#read(call);
  }

  /**
   * Reads a body. If the body names a preset that the call does not carry, returns the preset's name, since
   * the check needs the preset's members.
   */
  #read(call: ReadCall): LongBodyRead<unknown> {
    const { id, bytes, preset, guardrails } = call;
    const form = this.#forms[call.form]!;
    const text = textOfShared(bytes);
    const stored = this.#take(id);
    const parsed = stored ?? form.parse(text);
    form.check(parsed as never);
    const presetName = presetNamed(form.bodyOf?.(parsed as never) ?? parsed);
    if (presetName !== undefined && preset === undefined) {
      this.#store(id, parsed, bytes.byteLength);
      return { presetName };
    }
    // A request that was filled in an earlier read names no preset.
    const request = presetName === undefined ? parsed : filled(form, parsed, preset);
    if (presetName !== undefined) form.check(request as never);
    if (guardrails === undefined) {
      const facts = form.read(request as never, text);
      this.#store(id, request, bytes.byteLength);
      return { facts };
    }
    const { value, ...result } = screenJson(request, rulesFor(guardrails, "input"));
    const facts = form.read(value as never, text);
    this.#store(id, value, bytes.byteLength);
    return { facts, screened: { ...result, texts: moderatedTexts(value, guardrails) } };
  }

  async #render(call: RenderCall): Promise<ThreadOutcome> {
    const { id, bytes, preset, guardrails, shape, module, options } = call;
    const form = this.#forms[call.form]!;
    const renderer = await exportOf<BodyRender<unknown, unknown>>(module, BodyRender);
    const request =
      this.#take(id) ?? redacted(filled(form, form.parse(textOfShared(bytes)), preset), guardrails);
    return threadOutcome(() =>
      renderer.render(form.fieldsOf(request as never, shape as never), options),
    );
  }

  #store(id: number, request: unknown, byteLength: number): void {
    this.#parsed.set(id, { request, byteLength });
    this.#parsedBytes += byteLength;
    for (const oldest of this.#parsed.keys()) {
      if (this.#parsedBytes <= MAX_PARSED_BYTES) break;
      this.#take(oldest);
    }
  }

  #take(id: number): unknown {
    const entry = this.#parsed.get(id);
    if (entry === undefined) return undefined;
    this.#parsed.delete(id);
    this.#parsedBytes -= entry.byteLength;
    return entry.request;
  }
}
