import { useState } from "preact/hooks";
import { SCOPES } from "../../../lib/api-key-record.ts";
import { ApiError, call } from "../api.ts";
import { Button, Check, CopyText, Field } from "../components/controls.tsx";
import { Dialog, Form, toast } from "../components/dialog.tsx";
import { Notice } from "../components/display.tsx";
import type { ListedKey } from "./keys.tsx";

interface KeyDialogProps {
  /** Undefined for a new one. */
  readonly edited: ListedKey | undefined;
  onChanged(): void;
  onClose(): void;
}

interface Entries {
  readonly name: string;
  readonly rpm: string;
  readonly tpm: string;
  readonly daily: string;
  readonly monthly: string;
  readonly countsOwnKeys: boolean;
  readonly models: string;
  readonly expires: string;
  readonly scopes: readonly string[];
}

/** Creates a key, whose secret it shows once, or changes one. */
export function KeyDialog({ edited, onChanged, onClose }: KeyDialogProps) {
  const [entries, setEntries] = useState<Entries>(() => entriesOf(edited));
  const [secret, setSecret] = useState<string>();
  const set = (changed: Partial<Entries>) => setEntries((before) => ({ ...before, ...changed }));
  const save = async () => {
    const body = bodyOf(entries, edited);
    if (edited === undefined) {
      const created = await call<{ key: string }>("POST", "v1/keys", { body });
      setSecret(created.key);
    } else {
      await call("PATCH", `v1/keys/${edited.id}`, { body });
      toast(`Changed ${entries.name}.`);
      onClose();
    }
    onChanged();
  };
  if (secret !== undefined) {
    return (
      <Dialog title="Key created" onClose={onClose}>
        <SecretOnce secret={secret} onDone={onClose} />
      </Dialog>
    );
  }
  return (
    <Dialog
      title={edited === undefined ? "Create a secret key" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field
          label="Name"
          value={entries.name}
          onInput={(name) => set({ name })}
          isRequired
          hint="Of the program or person that uses it"
        />
        <LimitFields entries={entries} onChange={set} />
        <Field
          label="Allowed models"
          value={entries.models}
          onInput={(models) => set({ models })}
          placeholder="All models"
          hint="Ids separated by commas"
        />
        <Field
          label="Expires on"
          type="date"
          value={entries.expires}
          onInput={(expires) => set({ expires })}
          hint="At the beginning of that day in UTC"
        />
        <Scopes chosen={entries.scopes} onChange={(scopes) => set({ scopes })} />
      </Form>
    </Dialog>
  );
}

interface EntryProps {
  readonly entries: Entries;
  onChange(changed: Partial<Entries>): void;
}

function LimitFields({ entries, onChange }: EntryProps) {
  return (
    <>
      <div class="pair">
        <Field
          label="Requests per minute"
          value={entries.rpm}
          onInput={(rpm) => onChange({ rpm })}
          inputMode="numeric"
          placeholder="No limit"
        />
        <Field
          label="Tokens per minute"
          value={entries.tpm}
          onInput={(tpm) => onChange({ tpm })}
          inputMode="numeric"
          placeholder="No limit"
        />
        <Field
          label="Daily budget"
          value={entries.daily}
          onInput={(daily) => onChange({ daily })}
          inputMode="decimal"
          placeholder="No budget"
          hint="USD in a UTC day"
        />
        <Field
          label="Monthly budget"
          value={entries.monthly}
          onInput={(monthly) => onChange({ monthly })}
          inputMode="decimal"
          placeholder="No budget"
          hint="USD in a UTC month"
        />
      </div>
      {(entries.daily !== "" || entries.monthly !== "") && (
        <Check
          label="Budgets count calls with your own provider keys too"
          isChecked={entries.countsOwnKeys}
          onChange={(countsOwnKeys) => onChange({ countsOwnKeys })}
        />
      )}
    </>
  );
}

interface ScopesProps {
  readonly chosen: readonly string[];
  onChange(scopes: readonly string[]): void;
}

const EVERY: readonly string[] = SCOPES;

/** What the key may be used for; folded away, because most keys may be used for everything. */
function Scopes({ chosen, onChange }: ScopesProps) {
  const isAll = chosen.length === EVERY.length;
  return (
    <details class="fold" open={!isAll}>
      <summary>
        Scopes <span class="quiet">{isAll ? "All" : `${chosen.length} of ${EVERY.length}`}</span>
      </summary>
      <fieldset class="checks">
        <legend class="unseen">Scopes</legend>
        <Check
          label="All scopes"
          isChecked={isAll}
          onChange={(isOn) => onChange(isOn ? EVERY : [])}
        />
        {EVERY.map((scope) => (
          <Check
            key={scope}
            label={scope}
            isChecked={chosen.includes(scope)}
            onChange={(isOn) =>
              onChange(EVERY.filter((one) => (one === scope ? isOn : chosen.includes(one))))
            }
          />
        ))}
      </fieldset>
    </details>
  );
}

interface SecretOnceProps {
  readonly secret: string;
  /** Something is still being done with the key. */
  readonly isBusy?: boolean;
  onDone(): void;
}

/** The secret of a new key, for copying. */
export function SecretOnce({ secret, isBusy = false, onDone }: SecretOnceProps) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onDone();
      }}
    >
      <Notice tone="warn">
        Copy the key now: it is shown only once, and the gateway keeps only a hash of it.
      </Notice>
      <CopyText text={secret} label="secret key" />
      <footer>
        <Button type="submit" variant="primary" isBusy={isBusy}>
          Done
        </Button>
      </footer>
    </form>
  );
}

function entriesOf(key: ListedKey | undefined): Entries {
  const text = (value: number | null | undefined) => value?.toString() ?? "";
  return {
    name: key?.name ?? "",
    rpm: text(key?.rate_limit_rpm),
    tpm: text(key?.rate_limit_tpm),
    daily: text(key?.daily_budget_usd),
    monthly: text(key?.monthly_budget_usd),
    countsOwnKeys: key?.budget_includes_byok ?? false,
    models: key?.allowed_models?.join(", ") ?? "",
    expires: key?.expires_at?.slice(0, 10) ?? "",
    scopes: key?.scopes ?? EVERY,
  };
}

/** What a form says, as the API takes it; nothing of an expiry or scopes that were left as they are. */
function bodyOf(entries: Entries, edited: ListedKey | undefined) {
  const models = entries.models
    .split(",")
    .map((id) => id.trim())
    .filter((id) => id !== "");
  const before = entriesOf(edited);
  if (entries.scopes.length === 0) {
    throw new ApiError(400, "invalid_body", "Choose one scope at least.", "scopes");
  }
  return {
    name: entries.name,
    rate_limit_rpm: numberIn(entries.rpm, "Requests per minute"),
    rate_limit_tpm: numberIn(entries.tpm, "Tokens per minute"),
    daily_budget_usd: numberIn(entries.daily, "Daily budget"),
    monthly_budget_usd: numberIn(entries.monthly, "Monthly budget"),
    budget_includes_byok: entries.countsOwnKeys,
    allowed_models: models.length === 0 ? null : models,
    ...(entries.expires !== before.expires && {
      expires_at: entries.expires === "" ? null : entries.expires,
    }),
    ...(entries.scopes.join() !== before.scopes.join() && { scopes: entries.scopes }),
  };
}

/** Null for an empty field. Throws where it holds no number. */
export function numberIn(text: string, field: string): number | null {
  const bare = text.trim().replace(/^\$/, "");
  if (bare === "") return null;
  const value = Number(bare);
  if (Number.isFinite(value)) return value;
  throw new ApiError(400, "invalid_body", `${field} must be a number.`, null);
}
