import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Button, Link } from "../components/controls.tsx";
import { Badge, Notice } from "../components/display.tsx";
import { Mark } from "../components/icon.tsx";
import { duration, integer, usdExact } from "../format.ts";
import type { Answer, AnswerState, Usage } from "./answer.ts";
import { MarkdownView } from "./markdown-view.tsx";
import { SoundPlayer } from "./sound-player.tsx";

const MS_PER_SECOND = 1_000;

interface AnswerViewProps {
  readonly answer: Answer;
  /** Asks for the answer again. Undefined: it is not the last one. */
  readonly onRetry: (() => void) | undefined;
}

/** A streaming answer with its measurements and cost. */
export function AnswerView({ answer, onRetry }: AnswerViewProps) {
  const state = answer.state.value;
  const { phase, text, reasoning, refusal, toolCalls, images, sound, error } = state;
  const isRunning = answer.isRunning;
  return (
    <article class="answer" aria-label={`Answer from ${answer.model}`} aria-busy={isRunning}>
      <header>
        <Mark of={answer.model} />
        <span class="code">{answer.model}</span>
        {phase === "stopped" && <Badge tone="warn">Stopped</Badge>}
        {phase === "failed" && <Badge tone="bad">{error?.code ?? "failed"}</Badge>}
        {isRunning && (
          <Button variant="quiet" label={`Stop ${answer.model}`} onClick={() => answer.stop()}>
            Stop
          </Button>
        )}
        {!isRunning && text !== "" && <CopyAnswer text={text} model={answer.model} />}
        {!isRunning && onRetry && (
          <Button variant="quiet" label={`Retry ${answer.model}`} onClick={onRetry}>
            Retry
          </Button>
        )}
      </header>
      {reasoning !== "" && (
        <details>
          <summary>{reasoningTitle(state)}</summary>
          <p class="message-text quiet">{reasoning}</p>
        </details>
      )}
      {text !== "" && <MarkdownView text={text} isRunning={isRunning} />}
      {images.map((url, index) => (
        <img
          key={index}
          class="answer-image"
          src={url}
          alt={`Output ${index + 1} of ${answer.model}`}
        />
      ))}
      {sound && !isRunning && <SoundPlayer sound={sound} />}
      {refusal !== "" && (
        <Notice tone="warn">
          <p class="message-text">{refusal}</p>
        </Notice>
      )}
      {toolCalls.map((call, index) => (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the block scrolls, so it has to be focusable
        <pre key={call.id || index} class="block code" tabIndex={0}>
          {`${call.function.name}(${call.function.arguments})`}
        </pre>
      ))}
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

/** Returns a title such as "Reasoning, 28 tokens". */
function reasoningTitle({ usage }: AnswerState): string {
  const tokens = usage?.completion_tokens_details?.reasoning_tokens;
  return tokens ? `Reasoning, ${integer(tokens)} tokens` : "Reasoning";
}

function CopyAnswer({ text, model }: { readonly text: string; readonly model: string }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => setCopied(false), [text]);
  // Browsers allow the clipboard on secure origins only.
  if (navigator.clipboard === undefined) return null;
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <Button variant="quiet" label={`Copy the answer from ${model}`} onClick={() => void copy()}>
      {isCopied ? "Copied" : "Copy"}
    </Button>
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
