import { renderBody } from "./openai/chat/shape-body.ts";
import { planLongAnswer } from "./sandbox/long-answer.ts";

type Render = (body: Readonly<Record<string, unknown>>, options: never) => unknown;

/**
 * What each wire format makes of a long body, by the name that its provider gives to LongCallBody.render. The
 * registry is not imported into the work thread for this: it would load every provider there.
 */
export const LONG_BODY_RENDERS: Readonly<Record<string, Render>> = {
  openai: renderBody,
  sandbox: planLongAnswer,
};
