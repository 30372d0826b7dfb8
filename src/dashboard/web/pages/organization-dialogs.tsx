import { useMemo, useState } from "preact/hooks";
import { PLANS } from "../../../lib/plans.ts";
import { call } from "../api.ts";
import { Button, Check, Choice, CopyText, Field } from "../components/controls.tsx";
import { Dialog, Form, toast } from "../components/dialog.tsx";
import { Notice } from "../components/display.tsx";
import { usd, usdExact } from "../format.ts";
import { numberIn } from "./key-dialog.tsx";
import type { Organization } from "./organizations.tsx";
import { planTitle } from "./settings/plans.ts";

interface OrganizationDialogProps {
  /** Undefined for a new one. */
  readonly edited: Organization | undefined;
  onChanged(): void;
  onClose(): void;
}

interface Entries {
  readonly name: string;
  /** Empty: the gateway's own choice. */
  readonly plan: string;
  readonly fee: string;
  readonly quotaGigabytes: string;
  readonly maxKeys: string;
  readonly maxWebhooks: string;
  readonly hasCreditLimit: boolean;
  readonly creditLimit: string;
  readonly usesComputers: boolean;
  readonly startingCredit: string;
}

interface FirstKeys {
  readonly management_key: string;
  readonly secret_key: string;
}

/** Creates an organization, whose first keys it shows once, or changes one. */
export function OrganizationDialog({ edited, onChanged, onClose }: OrganizationDialogProps) {
  const [entries, setEntries] = useState<Entries>(() => entriesOf(edited));
  const [keys, setKeys] = useState<FirstKeys>();
  const set = (changed: Partial<Entries>) => setEntries((before) => ({ ...before, ...changed }));
  const save = async () => {
    const body = changedIn(entries, edited);
    if (edited === undefined) {
      setKeys(await call<FirstKeys>("POST", "v1/admin/organizations", { body }));
    } else {
      await call("PATCH", `v1/admin/organizations/${edited.id}`, { body });
      toast(`Changed ${entries.name}.`);
      onClose();
    }
    onChanged();
  };
  if (keys !== undefined) return <FirstKeysDialog keys={keys} onClose={onClose} />;
  return (
    <Dialog
      title={edited === undefined ? "Create an organization" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field label="Name" value={entries.name} onInput={(name) => set({ name })} isRequired />
        <div class="pair">
          <Choice
            label="Plan"
            value={entries.plan}
            options={[
              ...(edited === undefined ? [["", "Default"] as const] : []),
              ...PLANS.map((plan) => [plan, planTitle(plan)] as const),
            ]}
            onChange={(plan) => set({ plan })}
          />
          <Field
            label="Fee in percent"
            value={entries.fee}
            onInput={(fee) => set({ fee })}
            inputMode="decimal"
            placeholder="That of the plan"
          />
        </div>
        <Credit entries={entries} isNew={edited === undefined} onChange={set} />
        <Limits entries={entries} onChange={set} />
        <Check
          label="Requests may offer tools that operate a computer"
          isChecked={entries.usesComputers}
          onChange={(usesComputers) => set({ usesComputers })}
        />
      </Form>
    </Dialog>
  );
}

interface EntryProps {
  readonly entries: Entries;
  onChange(changed: Partial<Entries>): void;
}

function Credit({ entries, isNew, onChange }: EntryProps & { readonly isNew: boolean }) {
  return (
    <>
      <div class="pair">
        <Field
          label="Credit limit"
          value={entries.creditLimit}
          onInput={(creditLimit) => onChange({ creditLimit })}
          inputMode="decimal"
          placeholder={entries.hasCreditLimit ? "That of the plan" : "Without limit"}
          hint="USD below zero"
          isDisabled={!entries.hasCreditLimit}
        />
        {isNew && (
          <Field
            label="Starting credit"
            value={entries.startingCredit}
            onInput={(startingCredit) => onChange({ startingCredit })}
            inputMode="decimal"
            placeholder="Default"
            hint="USD"
          />
        )}
      </div>
      <Check
        label="Credit without limit"
        isChecked={!entries.hasCreditLimit}
        onChange={(isOn) => onChange({ hasCreditLimit: !isOn })}
      />
    </>
  );
}

function Limits({ entries, onChange }: EntryProps) {
  const field = (name: "maxKeys" | "maxWebhooks" | "quotaGigabytes", label: string) => (
    <Field
      label={label}
      value={entries[name]}
      onInput={(value) => onChange({ [name]: value })}
      inputMode="numeric"
      placeholder="Default"
    />
  );
  return (
    <div class="pair">
      {field("maxKeys", "Keys at most")}
      {field("maxWebhooks", "Webhooks at most")}
      {field("quotaGigabytes", "Files, in GiB")}
    </div>
  );
}

function FirstKeysDialog({ keys, onClose }: { readonly keys: FirstKeys; onClose(): void }) {
  return (
    <Dialog title="Organization created" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onClose();
        }}
      >
        <Notice tone="warn">
          Copy both keys now: they are shown only once. The management key signs in to this
          dashboard, programs call models with the secret key.
        </Notice>
        <CopyText text={keys.management_key} label="management key" />
        <CopyText text={keys.secret_key} label="secret key" />
        <footer>
          <Button type="submit" variant="primary">
            Done
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

const BYTES_A_GIGABYTE = 1024 ** 3;

function entriesOf(edited: Organization | undefined): Entries {
  const own = (field: string, value: number | undefined) =>
    edited?.overrides.includes(field) ? String(value) : "";
  return {
    name: edited?.name ?? "",
    plan: edited?.plan ?? "",
    fee: own("fee_percent", edited?.fee_percent),
    quotaGigabytes: own("file_quota_bytes", (edited?.file_quota_bytes ?? 0) / BYTES_A_GIGABYTE),
    maxKeys: own("max_keys", edited?.max_keys),
    maxWebhooks: own("max_webhooks", edited?.max_webhooks),
    hasCreditLimit: edited?.credit_limit_usd !== null,
    creditLimit: edited?.credit_limit_usd?.toString() ?? "",
    usesComputers: edited?.computer_use ?? false,
    startingCredit: "",
  };
}

/** What differs from before: what is left as it was follows the plan where that changes. */
function changedIn(entries: Entries, edited: Organization | undefined): Record<string, unknown> {
  const before = entriesOf(edited);
  const body: Record<string, unknown> = {};
  const note = (field: string, name: keyof Entries, value: () => unknown) => {
    if (entries[name] !== before[name]) body[field] = value();
  };
  note("name", "name", () => entries.name);
  note("plan", "plan", () => entries.plan);
  note("fee_percent", "fee", () => numberIn(entries.fee, "Fee in percent"));
  note("file_quota_bytes", "quotaGigabytes", () => {
    const gigabytes = numberIn(entries.quotaGigabytes, "Files, in GiB");
    return gigabytes === null ? null : Math.round(gigabytes * BYTES_A_GIGABYTE);
  });
  note("max_keys", "maxKeys", () => numberIn(entries.maxKeys, "Keys at most"));
  note("max_webhooks", "maxWebhooks", () => numberIn(entries.maxWebhooks, "Webhooks at most"));
  note("computer_use", "usesComputers", () => entries.usesComputers);
  note("starting_credit_usd", "startingCredit", () =>
    numberIn(entries.startingCredit, "Starting credit"),
  );
  if (!entries.hasCreditLimit) {
    if (before.hasCreditLimit) body.credit_limit_usd = null;
  } else if (entries.creditLimit !== before.creditLimit || !before.hasCreditLimit) {
    body.credit_limit_usd = numberIn(entries.creditLimit, "Credit limit") ?? 0;
  }
  return body;
}

interface AdjustmentProps {
  readonly organization: Organization;
  onChanged(): void;
  onClose(): void;
}

/** Adds to a balance or takes from it, once what it will be has been looked at. */
export function AdjustmentDialog({ organization, onChanged, onClose }: AdjustmentProps) {
  const [amount, setAmount] = useState("");
  const [description, setDescription] = useState("");
  /** What is to be confirmed. */
  const [checked, setChecked] = useState<number>();
  /** The same for every attempt at one order: an adjustment whose answer was lost is not made twice. */
  const idempotencyKey = useMemo(() => crypto.randomUUID(), [amount, description]);
  const { id, name, balance_usd: balance } = organization;
  const adjust = async () => {
    const body = { amount_usd: checked, description };
    const headers = { "idempotency-key": idempotencyKey };
    await call("POST", `v1/admin/organizations/${id}/adjustments`, { body, headers });
    toast(`Adjusted the balance of ${name}.`);
    onClose();
    onChanged();
  };
  if (checked !== undefined) {
    return (
      <Dialog title={checked < 0 ? "Take this from the balance?" : "Add this?"} onClose={onClose}>
        <Form
          submit={checked < 0 ? `Take ${usdExact(-checked)}` : `Add ${usdExact(checked)}`}
          cancel="Back"
          isDanger={checked < 0}
          onCancel={() => setChecked(undefined)}
          onSubmit={adjust}
        >
          <dl class="facts">
            <dt>Organization</dt>
            <dd>{name}</dd>
            <dt>Balance now</dt>
            <dd>{usdExact(balance)}</dd>
            <dt>Balance then</dt>
            <dd>{usdExact(balance + checked)}, less what is used meanwhile</dd>
            <dt>Description</dt>
            <dd>{description}</dd>
          </dl>
        </Form>
      </Dialog>
    );
  }
  return (
    <Dialog title={`Adjust the balance of ${name}`} onClose={onClose}>
      <Form
        submit="Adjust"
        onCancel={onClose}
        onSubmit={async () => setChecked(numberIn(amount, "Amount") ?? 0)}
      >
        <Field
          label="Amount"
          value={amount}
          onInput={setAmount}
          inputMode="decimal"
          isRequired
          hint={`USD; a negative amount takes away. The balance is ${usd(balance)}.`}
        />
        <Field label="Description" value={description} onInput={setDescription} isRequired />
      </Form>
    </Dialog>
  );
}
