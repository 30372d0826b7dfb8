import { useState } from "preact/hooks";
import { ApiError, call } from "../../api.ts";
import { Button, Choice, Field, Link, OutsideLink } from "../../components/controls.tsx";
import { Dialog, Form, toast } from "../../components/dialog.tsx";
import { LoadFailure, Notice, Panel } from "../../components/display.tsx";
import { usd } from "../../format.ts";
import { useReturn } from "../../resource.ts";
import { numberIn } from "../key-dialog.tsx";
import type { PaymentBounds } from "./billing.tsx";
import { AddMethodDialog, methodTitle, type PaymentMethod } from "./payment-methods.tsx";
import { BalanceFigures, type StatementList } from "./statements.tsx";

interface CreditsPanelProps {
  readonly statements: StatementList | undefined;
  readonly error: string | undefined;
  readonly bounds: PaymentBounds | undefined;
  readonly methods: readonly PaymentMethod[] | undefined;
  onChanged(): void;
}

export function CreditsPanel({ statements, error, bounds, methods, onChanged }: CreditsPanelProps) {
  const [isPaying, setPaying] = useState(false);
  const [isOrdering, setOrdering] = useState(false);
  const [outcome, setOutcome] = useState<Outcome>();
  const canPay = bounds !== undefined && bounds.processor !== null && methods !== undefined;
  return (
    <Panel
      title="Credit"
      aside={
        bounds?.processor !== null && (
          <Button
            needs="billing:write"
            variant="primary"
            isDisabled={!canPay}
            // The dialog can be closed before the answer arrives.
            isBusy={isOrdering}
            onClick={() => setPaying(true)}
          >
            Add credit
          </Button>
        )
      }
      isFlush
    >
      {error !== undefined && <LoadFailure message={error} />}
      <BalanceFigures statements={statements} />
      <p class="more">
        <Link page="transactions">All transactions</Link>
      </p>
      {isPaying && canPay && (
        <TopUpDialog
          bounds={bounds}
          methods={methods}
          outcome={outcome}
          onOutcome={setOutcome}
          onOrdering={setOrdering}
          onChanged={onChanged}
          onClose={() => setPaying(false)}
        />
      )}
    </Panel>
  );
}

/** An ordered payment. Ordering it again with the same key does not pay twice. */
interface Attempt {
  readonly key: string;
  readonly body: { readonly amount_usd: number; readonly payment_method_id: string };
}

interface Outcome {
  readonly attempt: Attempt;
  readonly kind: "needs authentication" | "unknown";
  readonly message: string;
  /** URL at which the cardholder authenticates. */
  readonly page: string | undefined;
}

const NOT_YET: Readonly<Record<Outcome["kind"], string>> = {
  "needs authentication": "The payment is not confirmed yet.",
  unknown: "The payment status is still unknown.",
};

interface TopUpProps {
  readonly bounds: PaymentBounds;
  readonly methods: readonly PaymentMethod[];
  /** Outcome of the last attempt, if it is open. The dialog can be closed and opened again. */
  readonly outcome: Outcome | undefined;
  onOutcome(outcome: Outcome | undefined): void;
  onOrdering(isOrdering: boolean): void;
  onChanged(): void;
  onClose(): void;
}

/** Buys credit. Repeats an order with its key until its outcome is known. */
function TopUpDialog({ bounds, methods, outcome, onOutcome, ...on }: TopUpProps) {
  const { onOrdering, onChanged, onClose } = on;
  const [amount, setAmount] = useState("25");
  const [chosenId, setMethodId] = useState<string>();
  const defaultMethod = methods.find(({ is_default: isDefault }) => isDefault);
  const methodId = chosenId ?? defaultMethod?.id ?? methods[0]?.id;

  const order = async (attempt: Attempt) => {
    onOrdering(true);
    try {
      const { amount_usd: paidUsd } = await call<{ amount_usd: number }>(
        "POST",
        "v1/credits/topup",
        { body: attempt.body, headers: { "idempotency-key": attempt.key } },
      );
      toast(`Added ${usd(paidUsd)} to the balance.`);
      onOutcome(undefined);
      onClose();
    } catch (error) {
      const next = outcomeOf(attempt, error);
      if (next !== undefined) {
        if (outcome !== undefined) toast(NOT_YET[next.kind]);
        return onOutcome(next);
      }
      // After a decline, the next order is a new attempt. Other errors do not change an open attempt.
      if (error instanceof ApiError && error.status === 402) onOutcome(undefined);
      throw error;
    } finally {
      onOrdering(false);
      onChanged();
    }
  };
  useReturn(() => {
    if (outcome?.kind === "needs authentication") void order(outcome.attempt).catch(() => {});
  });

  if (outcome !== undefined) {
    const close = () => {
      // Only the cardholder can complete a payment that waits for authentication, so a new one can be
      // ordered.
      if (outcome.kind === "needs authentication") onOutcome(undefined);
      onClose();
    };
    return (
      <Dialog title="Add credit" onClose={close}>
        <Form
          submit="Check again"
          onCancel={close}
          cancel="Close"
          onSubmit={() => order(outcome.attempt)}
        >
          {outcome.kind === "unknown" ? (
            <Notice tone="warn">
              It is still unknown whether {usd(outcome.attempt.body.amount_usd)} was paid.{" "}
              {outcome.message} Checking again does not pay twice.
            </Notice>
          ) : (
            <Authentication outcome={outcome} />
          )}
        </Form>
      </Dialog>
    );
  }
  if (methodId === undefined) {
    return (
      <AddMethodDialog
        isTest={bounds.processor === "test"}
        lead="Add a payment method first. Then you choose the amount."
        onChanged={onChanged}
        // The form for the amount follows when the method is listed.
        onAdded={() => {}}
        onClose={onClose}
      />
    );
  }
  const pay = () => {
    const amountUsd = numberIn(amount, "Amount", "amount_usd");
    if (amountUsd === null) throw new ApiError(400, "invalid_body", "Enter an amount.", null);
    const body = { amount_usd: amountUsd, payment_method_id: methodId };
    return order({ key: crypto.randomUUID(), body });
  };
  return (
    <Dialog title="Add credit" onClose={onClose}>
      <Form submit={payText(amount)} onCancel={onClose} onSubmit={async () => pay()}>
        <Field
          label="Amount"
          param="amount_usd"
          value={amount}
          onInput={setAmount}
          inputMode="decimal"
          isRequired
          hint={`USD, from ${usd(bounds.min_usd)} to ${usd(bounds.max_usd)}`}
        />
        <Choice
          label="Pay with"
          param="payment_method_id"
          value={methodId}
          options={methods.map((method) => [method.id, methodTitle(method)] as const)}
          onChange={setMethodId}
        />
      </Form>
    </Dialog>
  );
}

function Authentication({ outcome: { page, attempt, message } }: { readonly outcome: Outcome }) {
  if (page === undefined) return <Notice tone="warn">{message}</Notice>;
  return (
    <Notice tone="warn">
      The bank asks the cardholder to confirm the payment of {usd(attempt.body.amount_usd)} (3-D
      Secure). <OutsideLink href={page}>Confirm it on the bank's page</OutsideLink>, then return
      here. It has to be confirmed within a day, and is then added to the balance.
    </Notice>
  );
}

/** Returns the outcome of an error that leaves the payment open. Returns undefined for other errors. */
function outcomeOf(attempt: Attempt, error: unknown): Outcome | undefined {
  if (!(error instanceof ApiError)) return undefined;
  const { status, code, message, payment } = error;
  const base = { attempt, message, page: payment.page };
  if (status === 402 && payment.declineCode === "authentication_required") {
    return { ...base, kind: "needs authentication" };
  }
  // The answer is missing or does not state the result of the payment.
  const isUnknown = status === 0 || status === 408 || (status >= 500 && code !== "provider_error");
  return isUnknown ? { ...base, kind: "unknown" } : undefined;
}

function payText(amount: string): string {
  const value = Number(amount.trim().replace(/^\$/, ""));
  return Number.isFinite(value) && value > 0 ? `Pay ${usd(value)}` : "Pay";
}
