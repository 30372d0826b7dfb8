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
  /** The organization to edit. Undefined for a new one. */
  readonly edited: Organization | undefined;
  onChanged(): void;
  onClose(): void;
}

interface Entries {
  readonly name: string;
  /** The plan. Empty means the gateway's default. */
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

/** Creates an organization and shows its first keys once, or edits an organization. */
export function OrganizationDialog({ edited, onChanged, onClose }: OrganizationDialogProps) {
  const [entries, setEntries] = useState<Entries>(() => entriesOf(edited));
  const [keys, setKeys] = useState<FirstKeys>();
  const set = (changed: Partial<Entries>) =>
    setEntries((previous) => ({ ...previous, ...changed }));
  const save = async () => {
    const body = changedIn(entries, edited);
    if (edited === undefined) {
      setKeys(await call<FirstKeys>("POST", "v1/admin/organizations", { body }));
    } else {
      await call("PATCH", `v1/admin/organizations/${edited.id}`, { body });
      toast(`Updated ${entries.name}.`);
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
        <Field
          label="Name"
          param="name"
          value={entries.name}
          onInput={(name) => set({ name })}
          isRequired
        />
        <div class="pair">
          <Choice
            label="Plan"
            param="plan"
            value={entries.plan}
            options={[
              ...(edited === undefined ? [["", "Default"] as const] : []),
              ...PLANS.map((plan) => [plan, planTitle(plan)] as const),
            ]}
            onChange={(plan) => set({ plan })}
          />
          <Field
            label="Fee (percent)"
            param="fee_percent"
            value={entries.fee}
            onInput={(fee) => set({ fee })}
            inputMode="decimal"
            placeholder="Plan default"
          />
        </div>
        <Credit entries={entries} isNew={edited === undefined} onChange={set} />
        <Limits entries={entries} onChange={set} />
        <Check
          label="Allow computer-use tools"
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
          param="credit_limit_usd"
          value={entries.creditLimit}
          onInput={(creditLimit) => onChange({ creditLimit })}
          inputMode="decimal"
          placeholder={entries.hasCreditLimit ? "Plan default" : "Unlimited"}
          hint="USD that the balance can go below zero"
          isDisabled={!entries.hasCreditLimit}
        />
        {isNew && (
          <Field
            label="Starting credit"
            param="starting_credit_usd"
            value={entries.startingCredit}
            onInput={(startingCredit) => onChange({ startingCredit })}
            inputMode="decimal"
            placeholder="Default"
            hint="USD"
          />
        )}
      </div>
      <Check
        label="Unlimited credit"
        isChecked={!entries.hasCreditLimit}
        onChange={(isOn) => onChange({ hasCreditLimit: !isOn })}
      />
    </>
  );
}

function Limits({ entries, onChange }: EntryProps) {
  const field = (
    name: "maxKeys" | "maxWebhooks" | "quotaGigabytes",
    label: string,
    param: string,
  ) => (
    <Field
      label={label}
      param={param}
      value={entries[name]}
      onInput={(value) => onChange({ [name]: value })}
      inputMode="numeric"
      placeholder="Default"
    />
  );
  return (
    <div class="pair">
      {field("maxKeys", "Max keys", "max_keys")}
      {field("maxWebhooks", "Max webhooks", "max_webhooks")}
      {field("quotaGigabytes", "File storage (GiB)", "file_quota_bytes")}
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
          Copy both keys now. They are shown only once. The management key signs in to this
          dashboard. Programs call models with the secret key.
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
  const override = (field: string, value: number | undefined) =>
    edited?.overrides.includes(field) ? String(value) : "";
  return {
    name: edited?.name ?? "",
    plan: edited?.plan ?? "",
    fee: override("fee_percent", edited?.fee_percent),
    quotaGigabytes: override(
      "file_quota_bytes",
      (edited?.file_quota_bytes ?? 0) / BYTES_A_GIGABYTE,
    ),
    maxKeys: override("max_keys", edited?.max_keys),
    maxWebhooks: override("max_webhooks", edited?.max_webhooks),
    hasCreditLimit: edited?.credit_limit_usd !== null,
    creditLimit: edited?.credit_limit_usd?.toString() ?? "",
    usesComputers: edited?.computer_use ?? false,
    startingCredit: "",
  };
}

/** Returns the changed fields. Unchanged fields follow the plan if the plan changes. */
function changedIn(entries: Entries, edited: Organization | undefined): Record<string, unknown> {
  const previous = entriesOf(edited);
  const body: Record<string, unknown> = {};
  const addIfChanged = (field: string, name: keyof Entries, value: () => unknown) => {
    if (entries[name] !== previous[name]) body[field] = value();
  };
  addIfChanged("name", "name", () => entries.name);
  addIfChanged("plan", "plan", () => entries.plan);
  addIfChanged("fee_percent", "fee", () => numberIn(entries.fee, "Fee (percent)", "fee_percent"));
  addIfChanged("file_quota_bytes", "quotaGigabytes", () => {
    const gigabytes = numberIn(entries.quotaGigabytes, "File storage (GiB)", "file_quota_bytes");
    return gigabytes === null ? null : Math.round(gigabytes * BYTES_A_GIGABYTE);
  });
  addIfChanged("max_keys", "maxKeys", () => numberIn(entries.maxKeys, "Max keys", "max_keys"));
  addIfChanged("max_webhooks", "maxWebhooks", () =>
    numberIn(entries.maxWebhooks, "Max webhooks", "max_webhooks"),
  );
  addIfChanged("computer_use", "usesComputers", () => entries.usesComputers);
  addIfChanged("starting_credit_usd", "startingCredit", () =>
    numberIn(entries.startingCredit, "Starting credit", "starting_credit_usd"),
  );
  if (!entries.hasCreditLimit) {
    if (previous.hasCreditLimit) body.credit_limit_usd = null;
  } else if (entries.creditLimit !== previous.creditLimit || !previous.hasCreditLimit) {
    body.credit_limit_usd = numberIn(entries.creditLimit, "Credit limit", "credit_limit_usd") ?? 0;
  }
  return body;
}

interface AdjustmentProps {
  readonly organization: Organization;
  onChanged(): void;
  onClose(): void;
}

/** Adds to a balance or deducts from it, after a confirmation with the new balance. */
export function AdjustmentDialog({ organization, onChanged, onClose }: AdjustmentProps) {
  const [amount, setAmount] = useState("");
  const [description, setDescription] = useState("");
  /** Amount to confirm, in USD. */
  const [amountUsd, setAmountUsd] = useState<number>();
  /**
   * One idempotency key for all attempts at one adjustment: if an answer is lost, a retry does not adjust
   * twice.
   */
  const idempotencyKey = useMemo(() => crypto.randomUUID(), [amount, description]);
  const { id, name, balance_usd: balance } = organization;
  const adjust = async () => {
    const body = { amount_usd: amountUsd, description };
    const headers = { "idempotency-key": idempotencyKey };
    await call("POST", `v1/admin/organizations/${id}/adjustments`, { body, headers });
    toast(`Adjusted the balance of ${name}.`);
    onClose();
    onChanged();
  };
  if (amountUsd !== undefined) {
    return (
      <Dialog
        title={amountUsd < 0 ? "Deduct from the balance?" : "Add to the balance?"}
        onClose={onClose}
      >
        <Form
          submit={amountUsd < 0 ? `Deduct ${usdExact(-amountUsd)}` : `Add ${usdExact(amountUsd)}`}
          cancel="Back"
          isDanger={amountUsd < 0}
          onCancel={() => setAmountUsd(undefined)}
          onSubmit={adjust}
        >
          <dl class="facts">
            <dt>Organization</dt>
            <dd>{name}</dd>
            <dt>Current balance</dt>
            <dd>{usdExact(balance)}</dd>
            <dt>New balance</dt>
            <dd>{usdExact(balance + amountUsd)}, minus usage until then</dd>
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
        onSubmit={async () => setAmountUsd(numberIn(amount, "Amount", "amount_usd") ?? 0)}
      >
        <Field
          label="Amount"
          param="amount_usd"
          value={amount}
          onInput={setAmount}
          inputMode="decimal"
          isRequired
          hint={`USD. A negative amount is deducted. The balance is ${usd(balance)}.`}
        />
        <Field
          label="Description"
          param="description"
          value={description}
          onInput={setDescription}
          isRequired
          hint="The organization sees it among its transactions."
        />
      </Form>
    </Dialog>
  );
}
