import type { KnownDefinitions, Preset } from "../definitions/known-definitions.ts";
import type { Check } from "../../http/validate.ts";
import { isFields } from "../../lib/json.ts";
import type { Prepare } from "./paid-route.ts";
import { routedFields } from "./routed-fields.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The preset that a body names, whatever else it is. */
export function presetNamed(body: unknown): string | undefined {
  return isFields(body) && typeof body.preset === "string" ? body.preset : undefined;
}

/** Members of which a request states one alone: where it has either, a preset gives none of them. */
const RIVALS: readonly (readonly string[])[] = [
  ["model", "models"],
  ["max_tokens", "max_completion_tokens"],
];

/** The members that a preset adds to a request, in the fields of chat completions: those that it leaves open. */
export function membersOfPreset(
  { model, parameters }: Preset,
  isOpen: (field: string) => boolean,
): Fields {
  const given = model === null ? parameters : { ...parameters, model };
  const added = Object.entries(given).filter(([field]) => {
    const rivals = RIVALS.find((fields) => fields.includes(field)) ?? [field];
    return rivals.every(isOpen);
  });
  return Object.fromEntries(added);
}

/** Null says nothing, so that a preset may fill the member. */
export function isOpenIn(body: Fields): (field: string) => boolean {
  return (field) => body[field] === undefined || body[field] === null;
}

/** A body with what its preset adds; it names the preset no more. */
export type FillPreset<Body> = (body: Body, preset: Preset) => Body;

const ROUTED: ReadonlySet<string> = new Set(["model", ...Object.keys(routedFields)]);

/** With what is no matter of chats alone: the model and how it is routed, and what is recorded. */
export function fillRouted<Body extends { readonly preset?: string | null }>(
  { preset: _, ...body }: Body,
  preset: Preset,
): Body {
  const isOpen = isOpenIn(body);
  return {
    ...body,
    ...membersOfPreset(preset, (field) => ROUTED.has(field) && isOpen(field)),
  } as unknown as Body;
}

/** Fills bodies that the event loop has parsed; a thread fills those that it reads itself. */
export function preparePreset<Body extends object>(
  definitions: KnownDefinitions,
  fill: FillPreset<Body>,
  check: Check,
): Prepare {
  return (context) => {
    const { body, takenRate } = context;
    const name = presetNamed(body);
    if (name === undefined) return { body, takenRate };
    const prepared = (preset: Preset) => {
      const filled = fill(body as Body, preset);
      check(filled);
      return { body: filled, takenRate };
    };
    const preset = definitions.preset(context.caller.key.organizationId, name);
    return preset instanceof Promise ? preset.then(prepared) : prepared(preset);
  };
}
