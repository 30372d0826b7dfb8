import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Button, Choice, Code, Field, Tabs } from "../components/controls.tsx";
import { Dialog, Form, toast } from "../components/dialog.tsx";
import { Empty, PageHead } from "../components/display.tsx";
import { short } from "../format.ts";
import { type ListedModel, matching, useModels } from "../models/catalogue.ts";
import { priceSummary } from "../models/prices.tsx";
import type { Answer } from "../playground/answer.ts";
import { AnswerView } from "../playground/answer-view.tsx";
import { acceptedKinds } from "../playground/attachments.ts";
import { curlOf, javaScriptOf, pythonOf } from "../playground/code.ts";
import { Attachments, Composer, ToolResults } from "../playground/composer.tsx";
import {
  clear,
  edit,
  editing,
  isRunning,
  nextRequest,
  removeSide,
  retry,
  send,
  sides,
  type TraitsOf,
  type Turn,
  turns,
} from "../playground/conversation.ts";
import { saveConversation } from "../playground/history.ts";
import { HistoryPanel } from "../playground/history-panel.tsx";
import { forgetPasted, pastedName, pasteKey } from "../playground/key.ts";
import {
  fromFragment,
  MAX_SIDES,
  type ModelTraits,
  settings,
  sharedFragment,
} from "../playground/settings.ts";
import { SettingsPanel } from "../playground/settings-panel.tsx";
import { changeQuery, gatewayUrl, hrefOf, query, takeFragment } from "../router.ts";

/** Chats with up to four models side by side, with a key that the gateway makes for the session. */
export function PlaygroundPage() {
  const { models } = useModels();
  const [shownDialog, setShownDialog] = useState<"code" | "key">();
  const chats = useMemo(() => matching(models, { use: "chat" }), [models]);
  const byId = useMemo(() => new Map(chats.map((model) => [model.id, model])), [chats]);
  const modelOf = (id: string) => byId.get(id.trim());
  const traitsOf = (id: string) => traitsIn(modelOf(id));
  const traits = sides.value.map(traitsOf);
  const close = () => setShownDialog(undefined);
  useEffect(readUrl, []);
  return (
    <>
      <PageHead title="Playground">
        <Button onClick={() => void share()}>Share settings</Button>
        <Button onClick={() => setShownDialog("code")}>Code</Button>
        {pastedName.value === undefined ? (
          <Button onClick={() => setShownDialog("key")}>Use another key</Button>
        ) : (
          <Button onClick={forgetPasted}>Forget key</Button>
        )}
        {turns.value.length > 0 && <Button onClick={clear}>New conversation</Button>}
      </PageHead>
      <div class="playground">
        <div>
          <Sides chats={chats} modelOf={modelOf} />
          <Transcript traitsOf={traitsOf} />
          <ToolResults traitsOf={traitsOf} onSent={saveWhenEnded} />
          <Composer
            kinds={acceptedKinds(sides.value.map(modelOf))}
            onSend={() => saveWhenEnded(send(traitsOf))}
          />
        </div>
        <div class="playground-aside">
          <SettingsPanel
            hasEffort={traits.some(({ hasEffort }) => hasEffort)}
            makesSound={traits.some(({ makesSound }) => makesSound)}
          />
          <HistoryPanel />
        </div>
      </div>
      {shownDialog === "code" && <CodeDialog traitsOf={traitsOf} onClose={close} />}
      {shownDialog === "key" && <KeyDialog onClose={close} />}
    </>
  );
}

function traitsIn(model: ListedModel | undefined): ModelTraits {
  return {
    hasEffort: model?.supported_parameters.includes("reasoning_effort") === true,
    makesSound: model?.architecture.output_modalities.includes("audio") === true,
  };
}

/** Stores the conversation as each answer ends, so that a lost page loses at most the one that streams. */
function saveWhenEnded(answers: readonly (Answer | undefined)[]): void {
  for (const answer of answers) void answer?.ended.then(saveConversation);
}

/** Takes models and settings from the address, which another page or a shared link has. */
function readUrl(): void {
  const shared = fromFragment(takeFragment());
  const linked = [query.value.get("model"), ...query.value.getAll("with")].filter(
    (id) => id !== null,
  );
  const modelIds = shared === undefined ? linked : shared.models;
  if (shared !== undefined) settings.value = shared.settings;
  if (modelIds.length > 0) sides.value = modelIds.slice(0, MAX_SIDES);
  if (linked.length > 0) changeQuery({ model: undefined, with: undefined });
}

async function share(): Promise<void> {
  const link = new URL(hrefOf("playground"), location.href);
  link.hash = sharedFragment(sides.value, settings.value);
  // Browsers allow the clipboard on secure origins only.
  if (navigator.clipboard === undefined) {
    history.replaceState(null, "", link);
    toast("Copy the link from the address bar. It has the models and settings, and no messages.");
    return;
  }
  await navigator.clipboard.writeText(link.href);
  toast("Link copied. It has the models and settings, and no messages.");
}

function KeyDialog({ onClose }: { onClose(): void }) {
  const [text, setText] = useState("");
  return (
    <Dialog title="Use another key" onClose={onClose}>
      <Form
        submit="Use key"
        onCancel={onClose}
        onSubmit={async () => {
          await pasteKey(text.trim());
          onClose();
        }}
      >
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
    </Dialog>
  );
}

interface SidesProps {
  readonly chats: readonly ListedModel[];
  modelOf(id: string): ListedModel | undefined;
}

const MAX_SUGGESTIONS = 50;
const ORDINALS = ["", "Second", "Third", "Fourth"];
/** Classes of the columns, by their number. */
const COLUMNS = ["", "", "two", "three", "four"];

function Sides({ chats, modelOf }: SidesProps) {
  const shown = sides.value;
  const choose = (side: number, id: string) => {
    sides.value = shown.map((previous, index) => (index === side ? id : previous));
  };
  return (
    <div class={`sides ${COLUMNS[shown.length]}`}>
      {shown.map((id, side) => {
        const model = modelOf(id);
        return (
          <div key={side} class="side-head">
            <Field
              label={side === 0 ? "Model" : `${ORDINALS[side]} model`}
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
          {`Compare with a ${ORDINALS[shown.length]!.toLowerCase()} model`}
        </Button>
      )}
    </div>
  );
}

/** Distance from the end of the page within which the page follows new text, in pixels. */
const NEAR_PIXELS = 80;

function Transcript({ traitsOf }: { readonly traitsOf: TraitsOf }) {
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
      {turns.value.map((turn, index) => (
        <TurnView key={index} {...{ turn, index, traitsOf }} isLast={index === count - 1} />
      ))}
    </div>
  );
}

interface TurnViewProps {
  readonly turn: Turn;
  readonly index: number;
  readonly isLast: boolean;
  readonly traitsOf: TraitsOf;
}

function TurnView({ turn, index, isLast, traitsOf }: TurnViewProps) {
  const { text, attachments, results, answers } = turn;
  const isReplaced = editing.value !== undefined && index >= editing.value;
  const given = Object.values(results);
  return (
    <section aria-label={`Turn ${index + 1}`} class={isReplaced ? "replaced" : undefined}>
      <div class="user-message">
        <Attachments files={attachments} />
        {given.length === 0 ? (
          <p class="message-text">{text}</p>
        ) : (
          given.map((result, at) => (
            <p key={at} class="message-text code">
              {result || "(empty result)"}
            </p>
          ))
        )}
        {given.length === 0 && !isRunning() && (
          <Button variant="link" label={`Edit message ${index + 1}`} onClick={() => edit(index)}>
            Edit
          </Button>
        )}
      </div>
      <div class={`answers ${COLUMNS[answers.length]}`}>
        {answers.map(
          (answer, side) =>
            answer && (
              <AnswerView
                key={side}
                answer={answer}
                onRetry={isLast ? () => saveWhenEnded([retry(side, traitsOf)]) : undefined}
              />
            ),
        )}
      </div>
    </section>
  );
}

interface CodeDialogProps {
  readonly traitsOf: TraitsOf;
  onClose(): void;
}

const CODES = [
  ["curl", "curl"],
  ["python", "Python"],
  ["sdk", "OpenAI SDK"],
] as const;

/** The request as a command or a program, with a button to copy it. */
function CodeDialog({ traitsOf, onClose }: CodeDialogProps) {
  const [form, setForm] = useState("curl");
  const [side, setSide] = useState("0");
  const request = nextRequest(Number(side), traitsOf);
  const body = { ...request, model: request.model || "author/model" };
  const base = new URL("v1", gatewayUrl).href;
  const code =
    form === "curl"
      ? curlOf(`${base}/chat/completions`, body)
      : form === "python"
        ? pythonOf(base, body)
        : javaScriptOf(base, body);
  return (
    <Dialog title="Code" onClose={onClose}>
      <Tabs label="Format" tabs={CODES} current={form} onChange={setForm} />
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
        action={`Copy as ${CODES.find(([id]) => id === form)![1]}`}
        hint={
          <>
            Set the key first: <code>export SECRET_KEY=…</code>
          </>
        }
      />
    </Dialog>
  );
}
