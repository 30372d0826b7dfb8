import type { Preset } from "../definitions/known-definitions.ts";
import { textOfShared } from "../../http/read-body.ts";
import { BodyRender, type ChatRequestFields } from "../../providers/chat-body.ts";
import { exportOf, type ThreadOutcome, threadOutcome } from "../../providers/thread-work.ts";
import { type Guardrail, rulesFor } from "../guardrails/screening/guardrail.ts";
import { screenJson, textsOf } from "../guardrails/screening/screen-json.ts";
import { presetNamed } from "./fill-preset.ts";
import type { LongBodyCall, LongBodyRead } from "./long-bodies.ts";

/** What is special about the long bodies of one endpoint, in the thread. */
export interface LongBodyForm {
  parse(text: string): unknown;
  /** The part of it that may name a preset, where that is not the whole. */
  bodyOf?(request: never): unknown;
  /** Against the schema. Throws 400. */
  check(request: never): void;
  /** With what its preset adds. */
  fill(request: never, preset: Preset): unknown;
  /** The further checks that any request passes, in their order, and what the event loop needs. Throws what refuses it. */
  read(request: never, text: string): unknown;
  /** What a BodyRender gets. */
  fieldsOf(request: never, shape: never): ChatRequestFields;
}

type ReadCall = Extract<LongBodyCall, { readonly kind: "body.read" }>;
type RenderCall = Extract<LongBodyCall, { readonly kind: "body.render" }>;

function redacted(request: unknown, guardrails: readonly Guardrail[] | undefined): unknown {
  if (guardrails === undefined) return request;
  return screenJson(request, rulesFor(guardrails, "input")).value;
}

/** Empty where no model decides about them. */
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
 * Requests that were read and not rendered yet, so that most bodies are parsed once; a body that is missing
 * here is parsed again. Bounded by the bytes that they were parsed from.
 */
const MAX_PARSED_BYTES = 67_108_864;

/** What a work thread does with long bodies. Throws what refuses a body. */
export class LongBodyWork {
  readonly #forms: Readonly<Record<string, LongBodyForm>>;
  readonly #parsed = new Map<number, { readonly request: unknown; readonly byteLength: number }>();
  #parsedBytes = 0;

  /** @param forms by the names that calls give them */
  constructor(forms: Readonly<Record<string, LongBodyForm>>) {
    this.#forms = forms;
  }

  do(call: LongBodyCall): unknown {
    return call.kind === "body.render" ? this.#render(call) : this.#read(call);
  }

  /** A body that names a preset is checked with what that adds, so it has to be brought first. */
  #read(call: ReadCall): LongBodyRead<unknown> {
    const { id, bytes, preset, guardrails } = call;
    const form = this.#forms[call.form]!;
    const text = textOfShared(bytes);
    const known = this.#take(id);
    const parsed = known ?? form.parse(text);
    form.check(parsed as never);
    const presetName = presetNamed(form.bodyOf?.(parsed as never) ?? parsed);
    if (presetName !== undefined && preset === undefined) {
      this.#keep(id, parsed, bytes.byteLength);
      return { presetName };
    }
    // One that was filled before names its preset no more.
    const request = presetName === undefined ? parsed : filled(form, parsed, preset);
    if (presetName !== undefined) form.check(request as never);
    if (guardrails === undefined) {
      const facts = form.read(request as never, text);
      this.#keep(id, request, bytes.byteLength);
      return { facts };
    }
    const { value, ...found } = screenJson(request, rulesFor(guardrails, "input"));
    const facts = form.read(value as never, text);
    this.#keep(id, value, bytes.byteLength);
    return { facts, screened: { ...found, texts: moderatedTexts(value, guardrails) } };
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

  #keep(id: number, request: unknown, byteLength: number): void {
    this.#parsed.set(id, { request, byteLength });
    this.#parsedBytes += byteLength;
    for (const oldest of this.#parsed.keys()) {
      if (this.#parsedBytes <= MAX_PARSED_BYTES) break;
      this.#take(oldest);
    }
  }

  #take(id: number): unknown {
    const found = this.#parsed.get(id);
    if (found === undefined) return undefined;
    this.#parsed.delete(id);
    this.#parsedBytes -= found.byteLength;
    return found.request;
  }
}
