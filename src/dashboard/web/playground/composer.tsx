import { useRef, useState } from "preact/hooks";
import { Area, Button } from "../components/controls.tsx";
import { toast } from "../components/dialog.tsx";
import { usdExact } from "../format.ts";
import { type Attachment, acceptOf, dataUrl, readFiles } from "./attachments.ts";
import {
  attachments,
  draft,
  editing,
  isRunning,
  openCalls,
  sendResults,
  sides,
  stopAll,
  stopEditing,
  type TraitsOf,
  turns,
} from "./conversation.ts";
import { hasSessionKey, pastedName } from "./key.ts";
import { faultsOf, settings } from "./settings.ts";

interface ComposerProps {
  /** Kinds of files that all chosen models take. */
  readonly kinds: readonly Attachment["kind"][];
  onSend(): void;
}

/** The message that is being typed, with its files. */
export function Composer({ kinds, onSend }: ComposerProps) {
  const picker = useRef<HTMLInputElement>(null);
  const text = draft.value;
  const missing = missingInput(kinds);
  const isEmpty = text.trim() === "" && attachments.value.length === 0;
  const submit = () => {
    if (missing === undefined && !isRunning() && !isEmpty) onSend();
  };
  const attach = async (files: readonly File[]) => {
    const read = await readFiles(files, kinds, attachments.value);
    attachments.value = [...attachments.value, ...read.attachments];
    for (const fault of read.faults) toast(fault, true);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onPaste={(event) => {
        const files = [...(event.clipboardData?.files ?? [])];
        if (files.length === 0) return;
        event.preventDefault();
        void attach(files);
      }}
    >
      {editing.value !== undefined && (
        <p class="hint">
          You are editing message {editing.value + 1}. Sending it replaces the messages after it.
        </p>
      )}
      <Attachments files={attachments.value} isEditable />
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
        <div class="actions">
          {editing.value !== undefined && <Button onClick={stopEditing}>Cancel edit</Button>}
          {kinds.length > 0 && (
            <>
              <input
                ref={picker}
                type="file"
                class="unseen"
                aria-label="Files"
                tabIndex={-1}
                multiple
                accept={acceptOf(kinds)}
                onChange={(event) => {
                  const input = event.currentTarget;
                  void attach([...(input.files ?? [])]).finally(() => {
                    input.value = "";
                  });
                }}
              />
              <Button onClick={() => picker.current!.click()}>Attach files</Button>
            </>
          )}
          {isRunning() ? (
            <Button onClick={stopAll}>Stop</Button>
          ) : (
            <Button type="submit" variant="primary" isDisabled={missing !== undefined || isEmpty}>
              Send
            </Button>
          )}
        </div>
      </footer>
    </form>
  );
}

interface AttachmentsProps {
  readonly files: readonly Attachment[];
  readonly isEditable?: boolean;
}

/** The files of a message. */
export function Attachments({ files, isEditable = false }: AttachmentsProps) {
  if (files.length === 0) return null;
  return (
    <ul class="attachments" aria-label="Files of the message">
      {files.map((file, index) => (
        <li key={index}>
          {file.kind === "image" && file.data !== "" && <img src={dataUrl(file)} alt="" />}
          <span>{file.name}</span>
          {file.data === "" && <span class="quiet">not in the history</span>}
          {isEditable && (
            <Button
              variant="quiet"
              label={`Remove ${file.name}`}
              onClick={() => {
                attachments.value = files.filter((_, at) => at !== index);
              }}
            >
              ✕
            </Button>
          )}
        </li>
      ))}
    </ul>
  );
}

interface ToolResultsProps {
  readonly traitsOf: TraitsOf;
  onSent(answers: ReturnType<typeof sendResults>): void;
}

/** Fields for the results of the tool calls of the last answers. */
export function ToolResults({ traitsOf, onSent }: ToolResultsProps) {
  const [results, setResults] = useState<Readonly<Record<string, string>>>({});
  const calls = sides.value.flatMap((model, side) =>
    openCalls(side).map((call) => ({ ...call, model })),
  );
  if (calls.length === 0 || isRunning() || editing.value !== undefined) return null;
  return (
    <form
      class="tool-results"
      aria-label="Results of the tools"
      onSubmit={(event) => {
        event.preventDefault();
        const stated = Object.fromEntries(calls.map(({ id }) => [id, results[id] ?? ""]));
        onSent(sendResults(stated, traitsOf));
        setResults({});
      }}
    >
      {calls.map(({ id, model, function: { name } }) => (
        <Area
          key={`${model} ${id}`}
          label={calls.length === 1 ? `Result of ${name}` : `Result of ${name} for ${model}`}
          rows={2}
          value={results[id] ?? ""}
          onInput={(value) => setResults({ ...results, [id]: value })}
        />
      ))}
      <footer>
        <Button type="submit" isDisabled={missingInput([]) !== undefined}>
          {calls.length === 1 ? "Send result" : "Send results"}
        </Button>
      </footer>
    </form>
  );
}

function missingInput(kinds: readonly Attachment["kind"][]): string | undefined {
  if (pastedName.value === undefined && !hasSessionKey()) {
    return 'Your role gets no key for the playground. Choose "Use another key".';
  }
  if (sides.value.some((id) => id.trim() === "")) return "Choose a model first.";
  if (Object.values(faultsOf(settings.value)).some((fault) => fault !== undefined)) {
    return "Correct the settings first.";
  }
  return attachments.value.every(({ kind }) => kinds.includes(kind))
    ? undefined
    : "Not all chosen models take the files. Remove them.";
}

const NANO_PER_USD = 1_000_000_000;

/** Returns the pasted key, if there is one, and the total cost of the answers so far. */
function spentText(): string {
  const costs = turns.value
    .flatMap(({ answers }) => answers)
    .flatMap((answer) => answer?.state.value.costUsd ?? []);
  const parts = pastedName.value === undefined ? [] : [`Key: ${pastedName.value}`];
  if (costs.length > 0) {
    const nano = costs.reduce((sum, cost) => sum + Math.round(cost * NANO_PER_USD), 0);
    parts.push(`Total cost: ${usdExact(nano / NANO_PER_USD)}`);
  }
  return parts.join(" · ");
}
