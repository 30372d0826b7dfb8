import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Area, Button, Choice, Code, Field, Tabs } from "../components/controls.tsx";
import { Dialog, Form } from "../components/dialog.tsx";
import { Empty, PageHead, Panel } from "../components/display.tsx";
import { short, usdExact } from "../format.ts";
import { type ListedModel, matching, useModels } from "../models/catalogue.ts";
import { priceSummary } from "../models/prices.tsx";
import { AnswerView } from "../playground/answer-view.tsx";
import {
  clear,
  curlOf,
  draft,
  forgetKey,
  keyName,
  removeSide,
  requestOf,
  sdkOf,
  send,
  settings,
  sides,
  stopAll,
  turns,
  useKey,
} from "../playground/conversation.ts";
import { faultsOf, SettingsPanel } from "../playground/settings-panel.tsx";
import { changeQuery, gatewayUrl, query } from "../router.ts";

/** Chats with one model, or two side by side, with a secret key that only this page has. */
export function PlaygroundPage() {
  const { models } = useModels();
  const [isCodeShown, setCodeShown] = useState(false);
  const chats = useMemo(() => matching(models, { use: "chat" }), [models]);
  const byId = useMemo(() => new Map(chats.map((model) => [model.id, model])), [chats]);
  const hasEffort = (id: string) =>
    byId.get(id.trim())?.supported_parameters.includes("reasoning_effort") === true;
  useEffect(readModelsFromUrl, []);
  return (
    <>
      <PageHead title="Playground">
        <Button onClick={() => setCodeShown(true)}>Code</Button>
        {turns.value.length > 0 && <Button onClick={clear}>Clear</Button>}
        {keyName.value !== undefined && <Button onClick={forgetKey}>Forget key</Button>}
      </PageHead>
      {keyName.value === undefined && <KeyForm />}
      <div class="playground">
        <div>
          <Sides chats={chats} byId={byId} />
          <Transcript />
          <Composer hasEffort={hasEffort} />
        </div>
        <SettingsPanel hasEffort={sides.value.some(hasEffort)} />
      </div>
      {isCodeShown && <CodeDialog hasEffort={hasEffort} onClose={() => setCodeShown(false)} />}
    </>
  );
}

function readModelsFromUrl(): void {
  const modelIds = [query.value.get("model"), query.value.get("with")].filter((id) => id !== null);
  if (modelIds.length === 0) return;
  sides.value = modelIds;
  changeQuery({ model: undefined, with: undefined });
}

function KeyForm() {
  const [text, setText] = useState("");
  return (
    <Panel>
      <Form submit="Use key" onSubmit={() => useKey(text.trim())}>
        <Field
          label="Secret key"
          value={text}
          onInput={setText}
          isSecret
          isRequired
          placeholder="gateway_sk_…"
          hint="Requests are charged to this key and count towards its limits and budgets. The key stays in memory until you leave or reload the dashboard, and is never stored."
        />
      </Form>
    </Panel>
  );
}

interface SidesProps {
  readonly chats: readonly ListedModel[];
  readonly byId: ReadonlyMap<string, ListedModel>;
}

const MAX_SIDES = 2;
const MAX_SUGGESTIONS = 50;

function Sides({ chats, byId }: SidesProps) {
  const shown = sides.value;
  const choose = (side: number, id: string) => {
    sides.value = shown.map((previous, index) => (index === side ? id : previous));
  };
  return (
    <div class={shown.length === 1 ? "sides" : "sides two"}>
      {shown.map((id, side) => {
        const model = byId.get(id.trim());
        return (
          <div key={side} class="side-head">
            <Field
              label={side === 0 ? "Model" : "Second model"}
              value={id}
              onInput={(value) => choose(side, value)}
              placeholder="Type to search"
              suggestions={matching(chats, { text: id })
                .slice(0, MAX_SUGGESTIONS)
                .map((match) => match.id)}
              hint={
                model === undefined
                  ? "A chat model, as author/model"
                  : `${priceSummary(model)}; context ${short(model.context_length)}`
              }
            />
            {shown.length > 1 && (
              <Button
                variant="quiet"
                label={id.trim() === "" ? "Remove this side" : `Remove ${id.trim()}`}
                onClick={() => removeSide(side)}
              >
                Remove
              </Button>
            )}
          </div>
        );
      })}
      {shown.length < MAX_SIDES && (
        <Button
          onClick={() => {
            sides.value = [...shown, ""];
          }}
        >
          Compare with a second model
        </Button>
      )}
    </div>
  );
}

/** Distance from the end of the page within which the page follows new text, in pixels. */
const NEAR_PIXELS = 80;

function Transcript() {
  const shown = useRef<HTMLDivElement>(null);
  const isNearEnd = useRef(true);
  const count = turns.value.length;
  const toEnd = () => scrollTo(0, document.documentElement.scrollHeight);
  useEffect(() => {
    if (count === 0) return;
    isNearEnd.current = true;
    toEnd();
  }, [count]);
  useEffect(() => {
    const onScroll = () => {
      const { scrollHeight } = document.documentElement;
      isNearEnd.current = scrollHeight - innerHeight - scrollY < NEAR_PIXELS;
    };
    const growth = new ResizeObserver(() => {
      if (isNearEnd.current && isRunning()) toEnd();
    });
    growth.observe(shown.current!);
    addEventListener("scroll", onScroll);
    return () => {
      growth.disconnect();
      removeEventListener("scroll", onScroll);
    };
  }, []);
  return (
    <div ref={shown} class="transcript" role="log" aria-label="Conversation">
      {count === 0 && (
        <Empty title="No messages yet">
          <p>Choose a model, write a message, and see its answer with its speed and cost.</p>
        </Empty>
      )}
      {turns.value.map(({ text, answers }, index) => (
        <section key={index} aria-label={`Turn ${index + 1}`}>
          <p class="user-message message-text">{text}</p>
          <div class={answers.length === 1 ? "answers" : "answers two"}>
            {answers.map((answer, side) => answer && <AnswerView key={side} answer={answer} />)}
          </div>
        </section>
      ))}
    </div>
  );
}

interface EffortProps {
  /** Returns true if the model supports a reasoning effort. */
  hasEffort(model: string): boolean;
}

function isRunning(): boolean {
  return turns.value.at(-1)?.answers.some((answer) => answer?.isRunning) === true;
}

function Composer({ hasEffort }: EffortProps) {
  const text = draft.value;
  const missing = missingInput();
  const submit = () => {
    if (missing === undefined && !isRunning() && text.trim() !== "") send(hasEffort);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <Area
        label="Message"
        rows={2}
        value={text}
        onInput={(value) => {
          draft.value = value;
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          submit();
        }}
        placeholder="Enter to send, Shift+Enter for a new line"
      />
      <footer>
        <span class="quiet" role="status">
          {missing ?? spentText()}
        </span>
        {isRunning() ? (
          <Button onClick={stopAll}>Stop</Button>
        ) : (
          <Button
            type="submit"
            variant="primary"
            isDisabled={missing !== undefined || text.trim() === ""}
          >
            Send
          </Button>
        )}
      </footer>
    </form>
  );
}

function missingInput(): string | undefined {
  if (keyName.value === undefined) return "Enter a secret key first.";
  if (sides.value.some((id) => id.trim() === "")) return "Choose a model first.";
  return Object.values(faultsOf(settings.value)).some((fault) => fault !== undefined)
    ? "Correct the settings first."
    : undefined;
}

const NANO_PER_USD = 1_000_000_000;

/** Returns the key and the total cost of the answers so far. */
function spentText(): string {
  const costs = turns.value
    .flatMap(({ answers }) => answers)
    .flatMap((answer) => answer?.state.value.costUsd ?? []);
  const key = `Key: ${keyName.value}`;
  if (costs.length === 0) return key;
  const nano = costs.reduce((sum, cost) => sum + Math.round(cost * NANO_PER_USD), 0);
  return `${key} · Total cost: ${usdExact(nano / NANO_PER_USD)}`;
}

interface CodeDialogProps extends EffortProps {
  onClose(): void;
}

/** The request as a command or a program, with a button to copy it. */
function CodeDialog({ hasEffort, onClose }: CodeDialogProps) {
  const [form, setForm] = useState("curl");
  const [side, setSide] = useState("0");
  const request = requestOf(Number(side), hasEffort);
  const body = { ...request, model: request.model || "author/model" };
  const code =
    form === "curl"
      ? curlOf(new URL("v1/chat/completions", gatewayUrl).href, body)
      : sdkOf(new URL("v1", gatewayUrl).href, body);
  return (
    <Dialog title="Code" onClose={onClose}>
      <Tabs
        label="Format"
        tabs={[
          ["curl", "curl"],
          ["sdk", "OpenAI SDK"],
        ]}
        current={form}
        onChange={setForm}
      />
      {sides.value.length > 1 && (
        <Choice
          label="Request to"
          value={side}
          options={sides.value.map(
            (id, index) => [String(index), id.trim() || `Model ${index + 1}`] as const,
          )}
          onChange={setSide}
        />
      )}
      <Code
        text={code}
        action={form === "curl" ? "Copy as curl" : "Copy as OpenAI SDK"}
        hint={
          <>
            Set the key first: <code>export SECRET_KEY=…</code>
          </>
        }
      />
    </Dialog>
  );
}
