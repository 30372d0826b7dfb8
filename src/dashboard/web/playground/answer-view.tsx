import type { ComponentChildren } from "preact";
import { Button, Link } from "../components/controls.tsx";
import { Badge, Notice } from "../components/display.tsx";
import { duration, integer, usdExact } from "../format.ts";
import type { Answer, AnswerState, Usage } from "./answer.ts";

const MS_PER_SECOND = 1_000;

/** A streaming answer with its measurements and cost. */
export function AnswerView({ answer }: { readonly answer: Answer }) {
  const state = answer.state.value;
  const { phase, text, reasoning, refusal, toolCalls, error } = state;
  const isRunning = answer.isRunning;
  return (
    <article class="answer" aria-label={`Answer from ${answer.model}`} aria-busy={isRunning}>
      <header>
        <span class="code">{answer.model}</span>
        {phase === "stopped" && <Badge tone="warn">Stopped</Badge>}
        {phase === "failed" && <Badge tone="bad">{error!.code}</Badge>}
        {isRunning && (
          <Button variant="quiet" label={`Stop ${answer.model}`} onClick={() => answer.stop()}>
            Stop
          </Button>
        )}
      </header>
      {reasoning !== "" && (
        <details>
          <summary>Reasoning</summary>
          <p class="message-text quiet">{reasoning}</p>
        </details>
      )}
      {text !== "" && <p class="message-text">{text}</p>}
      {refusal !== "" && (
        <Notice tone="warn">
          <p class="message-text">{refusal}</p>
        </Notice>
      )}
      {toolCalls.map((call, index) => (
        <pre key={call.id || index} class="block code">
          {`${call.function.name}(${call.function.arguments})`}
        </pre>
      ))}
      {toolCalls.length > 0 && phase === "done" && (
        <p class="hint">Your next message is sent as the tool's result.</p>
      )}
      {phase === "waiting" && <p class="quiet">Waiting for the first token…</p>}
      {error !== undefined && (
        <Notice tone="bad">
          {error.message}
          {error.status >= 400 && ` (${error.status} ${error.code})`}
        </Notice>
      )}
      <Measures state={state} isRunning={isRunning} />
    </article>
  );
}

interface MeasuresProps {
  readonly state: AnswerState;
  readonly isRunning: boolean;
}

function Measures({ state, isRunning }: MeasuresProps) {
  const { firstTokenMs, usage, provider, requestId, finishReason } = state;
  const rate = isRunning ? undefined : tokensPerSecond(state);
  return (
    <dl class="measures">
      <Measure name="First token" value={firstTokenMs && duration(firstTokenMs)} />
      <Measure name="Speed" value={rate && `${integer(rate)} tokens/s`} />
      <Measure name="Tokens" value={usage && tokensText(usage)} />
      <Measure name="Cost" value={isRunning ? undefined : costText(state)} />
      <Measure name="Provider" value={provider} />
      <Measure name="Finish reason" value={finishReason === "stop" ? undefined : finishReason} />
      <Measure
        name="Request"
        value={
          requestId !== undefined &&
          !isRunning && (
            <Link page="requests" query={{ id: requestId }}>
              Details
            </Link>
          )
        }
      />
    </dl>
  );
}

interface MeasureProps {
  readonly name: string;
  /** The content. If it is empty, the measure is omitted. */
  readonly value: ComponentChildren;
}

function Measure({ name, value }: MeasureProps) {
  if (!value) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/**
 * Returns the streamed tokens per second, from the first token to the last. Hidden reasoning precedes the
 * first token and is not counted. An answer in one piece is measured from its request.
 */
function tokensPerSecond({
  usage,
  firstTokenMs = 0,
  streamedMs = 0,
  reasoning,
}: AnswerState): number | undefined {
  const ms = streamedMs < 1 ? firstTokenMs : streamedMs;
  if (usage === undefined || ms === 0) return undefined;
  const hidden = reasoning === "" ? (usage.completion_tokens_details?.reasoning_tokens ?? 0) : 0;
  return Math.round(((usage.completion_tokens - hidden) * MS_PER_SECOND) / ms);
}

/** Returns a text such as "12 (4 cached) → 33 (28 reasoning)". */
function tokensText(usage: Usage): string {
  const parts = (details: Usage["prompt_tokens_details"]) => {
    const counted = Object.entries(details ?? {}).flatMap(([kind, count]) =>
      count ? [`${integer(count)} ${kind.replace(/_tokens$/, "").replaceAll("_", " ")}`] : [],
    );
    return counted.length === 0 ? "" : ` (${counted.join(", ")})`;
  };
  const prompt = integer(usage.prompt_tokens) + parts(usage.prompt_tokens_details);
  const completion = integer(usage.completion_tokens) + parts(usage.completion_tokens_details);
  return `${prompt} → ${completion}`;
}

function costText({ costUsd, error, phase, requestId }: AnswerState): string | undefined {
  if (typeof costUsd === "number") return usdExact(costUsd);
  if (costUsd === null) return "Unknown";
  if (phase === "done" || requestId === undefined || (error && error.status >= 400)) return;
  return "Looking it up…";
}
