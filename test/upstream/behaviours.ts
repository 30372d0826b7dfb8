import type { BehaviourFunction, BehaviourOptions, Call } from "./behaviour.ts";
import { CALL_BEHAVIOURS } from "./behaviours-calls.ts";
import { FRAMING_BEHAVIOURS } from "./behaviours-framing.ts";
import { HTTP_BEHAVIOURS } from "./behaviours-http.ts";
import { MESSAGE_BEHAVIOURS } from "./behaviours-message.ts";
import { TROUBLE_BEHAVIOURS } from "./behaviours-trouble.ts";
import { listErrorRecordings, loadErrorRecording, loadRecording } from "./recordings.ts";
import { wholeAnswer } from "./scripted.ts";
import { type Answer, EVENT_STREAM, recordedEvents } from "./wire.ts";

/** Everything the upstream can do with a request to /chat/completions, by name. */
const BEHAVIOURS = {
  ...HTTP_BEHAVIOURS,
  ...TROUBLE_BEHAVIOURS,
  ...FRAMING_BEHAVIOURS,
  ...CALL_BEHAVIOURS,
  ...MESSAGE_BEHAVIOURS,
  replay,
} satisfies Record<string, BehaviourFunction>;

export type BehaviourName = keyof typeof BEHAVIOURS;

/** What is to be done with a request: `{ do: "cut", afterEvents: 2 }`. */
export interface Behaviour extends BehaviourOptions {
  do: BehaviourName;
}

export const BEHAVIOUR_NAMES = Object.keys(BEHAVIOURS) as BehaviourName[];

export function answerOf(name: BehaviourName, call: Call): Answer {
  const behave: BehaviourFunction = BEHAVIOURS[name];
  return behave(call);
}

/**
 * The behaviour that a model's own name asks for: `replay:<recording>` or `do:<behaviour>`; of others null. Throws where
 * there is no such behaviour.
 */
export function behaviourInModel(model: string): Behaviour | null {
  if (model.startsWith("replay:"))
    return { do: "replay", recording: model.slice("replay:".length) };
  if (!model.startsWith("do:")) return null;
  const name = model.slice("do:".length);
  if (!isBehaviourName(name)) throw new Error(`no behaviour named ${name}`);
  return { do: name };
}

export function isBehaviourName(name: unknown): name is BehaviourName {
  return typeof name === "string" && Object.hasOwn(BEHAVIOURS, name);
}

/** A recorded stream, cut at random offsets unless told otherwise; a recorded whole answer; or a recorded error. */
function replay(call: Call): Answer {
  const name = call.options.recording ?? "";
  if (listErrorRecordings().includes(name)) {
    const recorded = loadErrorRecording(name);
    return wholeAnswer(call, recorded.json, recorded.status);
  }
  const recording = loadRecording(name);
  if (recording.stream !== call.stream) {
    const message = `the recording ${name} ${recording.stream ? "is a stream" : "is no stream"}`;
    return wholeAnswer(
      call,
      { error: { message, type: "invalid_request_error", param: "stream", code: null } },
      400,
    );
  }
  if (!recording.stream) return wholeAnswer(call, recording.json);
  return {
    kind: "stream",
    status: 200,
    headers: { ...EVENT_STREAM, ...call.options.headers },
    steps: recordedEvents(recording.sse),
    pace: { cut: true, ...call.options },
  };
}
