import type { Call } from "./behaviour.ts";
import { asArray, asObject, type JsonObject } from "./json.ts";
import { completed } from "./scripted.ts";
import type { Answer } from "./wire.ts";

/** The regular answer, with further members in the message or in each delta. */
export function inEachMessage(call: Call, members: JsonObject): Answer {
  return completed(call, {
    chunks: (chunks) => chunks.map((chunk) => withMessage(chunk, members)),
    whole: (body) => withMessage(body, members),
  });
}

/** The message or delta of the first choice. */
export function messageOf(body: JsonObject): JsonObject {
  const choice = asObject(asArray(body.choices)[0]);
  return asObject(choice.delta ?? choice.message);
}

/** The body or chunk with further members in the message or delta of each choice. */
export function withMessage(body: JsonObject, members: JsonObject): JsonObject {
  return {
    ...body,
    choices: asArray(body.choices).map((item) => {
      const choice = asObject(item);
      const name = choice.delta === undefined ? "message" : "delta";
      return { ...choice, [name]: { ...asObject(choice[name]), ...members } };
    }),
  };
}
