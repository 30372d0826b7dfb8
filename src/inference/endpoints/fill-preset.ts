import type { Check } from "../../http/validate.ts";
import { isFields } from "../../lib/json.ts";
import type { DefinitionCache, Preset } from "../definitions/definition-cache.ts";
import type { IncomingCall, LoadedBody, Prepare } from "./paid-route.ts";
import { routedFields } from "./routed-fields.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Returns the preset that a body names. The body can have any type. */
export function presetNamed(body: unknown): string | undefined {
  return isFields(body) && typeof body.preset === "string" ? body.preset : undefined;
}

/**
 * Groups of alternative members. If the request has any member of a group, the preset adds none of that
 * group.
 */
const RIVALS: readonly (readonly string[])[] = [
  ["model", "models"],
  ["max_tokens", "max_completion_tokens"],
];

/**
 * Returns the members that a preset adds to a request, named as in chat completions. The preset adds only
 * members that the request leaves open.
 */
export function membersOfPreset(
  { model, parameters }: Preset,
  isOpen: (field: string) => boolean,
): Fields {
  const members = model === null ? parameters : { ...parameters, model };
  const added = Object.entries(members).filter(([field]) => {
    const rivals = RIVALS.find((fields) => fields.includes(field)) ?? [field];
    return rivals.every(isOpen);
  });
  return Object.fromEntries(added);
}

/** Returns a predicate for the members that a preset may fill: those that are missing or null. */
export function isOpenIn(body: Fields): (field: string) => boolean {
  return (field) => body[field] === undefined || body[field] === null;
}

/** Returns the body with the members that its preset adds, and without the name of the preset. */
export type FillPreset<Body> = (body: Body, preset: Preset) => Body;

const ROUTED: ReadonlySet<string> = new Set(["model", ...Object.keys(routedFields)]);

/** Fills the members that all billed endpoints have: the model, the routing fields and the recorded fields. */
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

/**
 * Returns the step that adds the named preset, and that of the key's team, to a body which the event loop has parsed. A work thread adds
 * presets to the long bodies that it parses.
 */
export function preparePreset<Body extends object>(
  definitions: DefinitionCache,
  fill: FillPreset<Body>,
  check: Check,
): Prepare {
  const load = async (
    { body, caller, admittedRateHeaders }: IncomingCall,
    names: readonly string[],
  ): Promise<LoadedBody> => {
    let filled = body as Body;
    for (const name of names) {
      filled = fill(filled, await definitions.preset(caller.key.organizationId, name));
    }
    check(filled);
    return { body: filled, admittedRateHeaders };
  };
  return (context) => {
    // The preset of the team fills what the request and its preset leave open.
    const named = presetNamed(context.body);
    const ofTeam = context.caller.key.team?.preset ?? undefined;
    const names = [named, ofTeam].filter((name) => name !== undefined);
    return names.length === 0 ? undefined : load(context, names);
  };
}
