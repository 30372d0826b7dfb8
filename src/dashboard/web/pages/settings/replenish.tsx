import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Check, Choice, Field } from "../../components/controls.tsx";
import { Form, toast } from "../../components/dialog.tsx";
import { Badge, LoadFailure, Notice, Panel, Skeleton } from "../../components/display.tsx";
import { usd } from "../../format.ts";
import { numberIn } from "../key-dialog.tsx";
import type { Credits, PaymentBounds } from "./billing.tsx";
import { methodTitle, type PaymentMethod } from "./payment-methods.tsx";

interface ReplenishPanelProps extends ReplenishProps {
  readonly error: string | undefined;
}

interface ReplenishProps {
  readonly credits: Credits | undefined;
  readonly bounds: PaymentBounds | undefined;
  readonly methods: readonly PaymentMethod[] | undefined;
  onChanged(): void;
}

const STATES = {
  off: ["neutral", "Off"],
  active: ["good", "On"],
  retrying: ["warn", "Declined, retrying"],
  stopped: ["bad", "Stopped"],
} as const;

const PROBLEMS = {
  off: undefined,
  active: undefined,
  retrying:
    "The last payment was declined. The gateway retries it after 10 minutes, then after an hour.",
  stopped:
    "Three payments in a row were declined, so automatic top-ups have stopped. Choose another payment method and save.",
} as const;

/** Settings of automatic payments for a low balance. */
export function ReplenishPanel({ error, ...props }: ReplenishPanelProps) {
  const { credits, bounds, methods, onChanged } = props;
  const status = credits && STATES[credits.replenish_status];
  return (
    <Panel title="Automatic top-ups" aside={status && <Badge tone={status[0]}>{status[1]}</Badge>}>
      {credits === undefined || bounds === undefined || methods === undefined ? (
        error === undefined ? (
          <Skeleton />
        ) : (
          <LoadFailure message={error} />
        )
      ) : (
        <ReplenishForm
          // Resets the form after saving. Changes of other figures keep the typed values.
          key={JSON.stringify([
            credits.auto_replenish,
            credits.replenish_threshold_usd,
            credits.replenish_amount_usd,
            credits.replenish_payment_method_id,
          ])}
          {...{ credits, bounds, methods, onChanged }}
        />
      )}
    </Panel>
  );
}

type LoadedProps<Props> = { readonly [Name in keyof Props]: NonNullable<Props[Name]> };

function ReplenishForm({ credits, bounds, methods, onChanged }: LoadedProps<ReplenishProps>) {
  const stated = (amount: number) => (amount === 0 ? "" : String(amount));
  const [isOn, setOn] = useState(credits.auto_replenish);
  const [threshold, setThreshold] = useState(stated(credits.replenish_threshold_usd));
  const [amount, setAmount] = useState(stated(credits.replenish_amount_usd));
  const [methodId, setMethodId] = useState(credits.replenish_payment_method_id ?? "");
  const problem = PROBLEMS[credits.replenish_status];
  // After declined payments the same settings can be saved again.
  const isUnchangedOff = problem === undefined && !isOn && !credits.auto_replenish;
  const save = async () => {
    const thresholdUsd = numberIn(threshold, "Threshold", "replenish_threshold_usd");
    const amountUsd = numberIn(amount, "Amount", "replenish_amount_usd");
    const body = {
      auto_replenish: isOn,
      ...(thresholdUsd !== null && { replenish_threshold_usd: thresholdUsd }),
      ...(amountUsd !== null && { replenish_amount_usd: amountUsd }),
      payment_method_id: methodId === "" ? null : methodId,
    };
    await call("PATCH", "v1/credits", { body });
    toast(isOn ? "Automatic top-ups are on." : "Automatic top-ups are off.");
    onChanged();
  };
  const options = methods.map((method) => [method.id, methodTitle(method)] as const);
  return (
    <Form needs="billing:write" submit="Save" isDisabled={isUnchangedOff} onSubmit={save}>
      {problem !== undefined && <Notice tone="bad">{problem}</Notice>}
      <Check label="Top up when the balance is low" isChecked={isOn} onChange={setOn} />
      {isOn && (
        <>
          <div class="triple">
            <Field
              label="Threshold"
              param="replenish_threshold_usd"
              value={threshold}
              onInput={setThreshold}
              inputMode="decimal"
              isRequired
              placeholder="10"
              hint="USD. Below this balance a top-up is paid."
            />
            <Field
              label="Amount"
              param="replenish_amount_usd"
              value={amount}
              onInput={setAmount}
              inputMode="decimal"
              isRequired
              placeholder="50"
              hint={`USD, from ${usd(bounds.min_usd)} to ${usd(bounds.max_usd)}`}
            />
            <Choice
              label="Pay with"
              param="payment_method_id"
              value={methodId}
              options={[["", "Default payment method"], ...options]}
              onChange={setMethodId}
            />
          </div>
          {credits.balance_usd < Number(threshold) && (
            <p class="hint">
              The balance is below the threshold, so the first payment is immediate.
            </p>
          )}
        </>
      )}
    </Form>
  );
}
