import type { TypedChoice, TypedCompletion } from "../../../providers/interface.ts";
import { CompletionRender } from "../../../providers/thread-work.ts";
import { type Guardrail, rulesFor } from "../../guardrails/screening/guardrail.ts";
import { JsonScreen, type MatchedRule } from "../../guardrails/screening/screen-json.ts";
import type { ScreeningRule } from "../../guardrails/screening/text-window.ts";
import { ChoiceScreen } from "./choice-screen.ts";

export interface ScreenedCompletion {
  readonly completion: TypedCompletion;
  readonly isBlocked: boolean;
  readonly hits: readonly MatchedRule[];
}

/** Returns a whole typed answer with its redactions. */
export function screenCompletion(
  completion: TypedCompletion,
  rules: readonly ScreeningRule[],
): ScreenedCompletion {
  const json = new JsonScreen(rules);
  const choices = completion.choices.map((choice, at) => screenChoice(choice, at, rules, json));
  const { isBlocked, hits } = json;
  return { completion: isBlocked ? completion : { ...completion, choices }, isBlocked, hits };
}

function screenChoice(
  choice: TypedChoice,
  at: number,
  rules: readonly ScreeningRule[],
  json: JsonScreen,
): TypedChoice {
  const { text, reasoning, reasoningDetails, refusal, toolCalls, annotations, pieces } = choice;
  const thought = reasoning === undefined ? undefined : json.text(reasoning);
  // Omitted if the reasoning was redacted. The details would restore the redacted text, and their signatures
  // cover the whole text.
  const details =
    thought === reasoning ? screenedDetails(reasoningDetails, rules, json) : undefined;
  const { reasoningDetails: _, logprobs: __, ...rest } = choice;
  return {
    ...rest,
    text: text === undefined ? undefined : json.text(text),
    reasoning: thought,
    refusal: refusal === undefined ? undefined : json.text(refusal),
    ...(details !== undefined && { reasoningDetails: details }),
    ...(toolCalls !== undefined && {
      toolCalls: toolCalls.map((call) => ({
        ...call,
        name: json.text(call.name),
        arguments: json.jsonText(call.arguments),
      })),
    }),
    ...(annotations !== undefined && {
      annotations: json.walk(annotations, false) as readonly unknown[],
    }),
    ...(pieces !== undefined && { pieces: screenedPieces(pieces, at, rules, json) }),
  };
}

function screenedDetails(
  details: TypedChoice["reasoningDetails"],
  rules: readonly ScreeningRule[],
  json: JsonScreen,
): TypedChoice["reasoningDetails"] {
  if (details === undefined) return undefined;
  const detailScreen = new JsonScreen(rules);
  detailScreen.walk(details, false);
  for (const hit of detailScreen.hits) json.add(hit);
  if (detailScreen.isBlocked) json.isBlocked = true;
  return detailScreen.hits.length === 0 ? details : undefined;
}

function screenedPieces(
  pieces: NonNullable<TypedChoice["pieces"]>,
  at: number,
  rules: readonly ScreeningRule[],
  json: JsonScreen,
): NonNullable<TypedChoice["pieces"]> {
  const screen = new ChoiceScreen(at, rules, json);
  const screened = pieces.flatMap((piece) => {
    if (piece.type === "tool_call") screen.addCall(piece);
    else if (piece.type === "text" || piece.type === "reasoning" || piece.type === "refusal") {
      return screen.add(piece);
    } else if (piece.type === "foreign_item") {
      return [{ ...piece, fields: json.walk(piece.fields, false) as typeof piece.fields }];
    } else return [piece];
    return [];
  });
  return [...screened, ...screen.end()];
}

/** Screens an answer that is too long for the event loop, in a work thread. */
export const screenLong = new CompletionRender(
  import.meta.url,
  (completion, { guardrails }: { readonly guardrails: readonly Guardrail[] }): ScreenedCompletion =>
    screenCompletion(completion, rulesFor(guardrails, "output")),
);
