import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button, Choice, OutsideLink } from "../../components/controls.tsx";
import { Confirm, Dialog, Form, perform, toast } from "../../components/dialog.tsx";
import { Badge, Empty, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { useReturn } from "../../resource.ts";
import type { Processor } from "./billing.tsx";

/** A payment method in the answer of GET /v1/billing/payment_methods. */
export interface PaymentMethod {
  readonly id: string;
  readonly type: string;
  readonly brand: string | null;
  readonly last4: string | null;
  readonly is_default: boolean;
  readonly created_at: string;
}

const BRANDS: Readonly<Record<string, string>> = {
  visa: "Visa",
  mastercard: "Mastercard",
  amex: "American Express",
  discover: "Discover",
  diners: "Diners Club",
  jcb: "JCB",
  unionpay: "UnionPay",
};

/** Returns a title such as "Visa ending in 4242". */
export function methodTitle({
  type,
  brand,
  last4,
}: Pick<PaymentMethod, "type" | "brand" | "last4">): string {
  const name = brand === null ? type : (BRANDS[brand] ?? brand);
  return last4 === null ? name : `${name} ending in ${last4}`;
}

/** The cards of the test processor, and the results of payments with them. */
const TEST_CARDS: readonly (readonly [name: string, text: string])[] = [
  ["pm_card_visa", "Visa (succeeds)"],
  ["pm_card_mastercard", "Mastercard (succeeds)"],
  ["pm_card_authenticationRequired", "Visa (requires 3-D Secure)"],
  ["pm_card_chargeDeclined", "Visa (declined)"],
  ["pm_card_chargeDeclinedInsufficientFunds", "Visa (insufficient funds)"],
  ["pm_card_chargeDeclinedExpiredCard", "Visa (expired)"],
];

interface PaymentMethodsProps {
  readonly methods: readonly PaymentMethod[] | undefined;
  readonly error: string | undefined;
  readonly processor: Processor;
  onChanged(): void;
}

export function PaymentMethodsPanel({ methods, error, processor, onChanged }: PaymentMethodsProps) {
  const [isAdding, setAdding] = useState(false);
  const [deleted, setDeleted] = useState<PaymentMethod>();
  const makeDefault = (method: PaymentMethod) =>
    perform(`${methodTitle(method)} is now the default.`, async () => {
      await call("PATCH", `v1/billing/payment_methods/${method.id}`, {
        body: { is_default: true },
      });
      onChanged();
    });
  return (
    <Panel
      title="Payment methods"
      aside={
        processor && (
          <Button needs="billing:write" onClick={() => setAdding(true)}>
            Add payment method
          </Button>
        )
      }
      isFlush
    >
      <Table
        label="Payment methods"
        columns={columns(makeDefault, setDeleted)}
        rows={methods}
        error={error}
        keyOf={({ id }) => id}
        empty={
          <Empty title="No payment methods yet">
            <p>Add a card to buy credit, now or automatically when the balance is low.</p>
          </Empty>
        }
      />
      {isAdding && (
        <AddMethodDialog
          isTest={processor === "test"}
          onChanged={onChanged}
          onClose={() => setAdding(false)}
        />
      )}
      {deleted !== undefined && (
        <Confirm
          title="Delete this payment method?"
          action="Delete payment method"
          onClose={() => setDeleted(undefined)}
          onConfirm={async () => {
            await call("DELETE", `v1/billing/payment_methods/${deleted.id}`);
            toast(`Deleted ${methodTitle(deleted)}.`);
            setDeleted(undefined);
            onChanged();
          }}
        >
          {methodTitle(deleted)} is no longer used for payments.
          {deleted.is_default && " If you have another method, it becomes the default."}
        </Confirm>
      )}
    </Panel>
  );
}

function columns(
  onMakeDefault: (method: PaymentMethod) => void,
  onDelete: (method: PaymentMethod) => void,
): Column<PaymentMethod>[] {
  return [
    {
      title: "Method",
      cell: (method) => (
        <span>
          <span class="strong">{methodTitle(method)}</span>{" "}
          {method.is_default && <Badge tone="good">Default</Badge>}
        </span>
      ),
    },
    { title: "Added", cell: ({ created_at: at }) => <Time iso={at} form="date" /> },
    {
      title: "Actions",
      isAction: true,
      cell: (method) => (
        <>
          {!method.is_default && (
            <Button
              needs="billing:write"
              variant="quiet"
              label={`Make default: ${methodTitle(method)}`}
              onClick={() => onMakeDefault(method)}
            >
              Make default
            </Button>
          )}
          <Button
            needs="billing:write"
            variant="quiet"
            label={`Delete ${methodTitle(method)}`}
            onClick={() => onDelete(method)}
          >
            Delete
          </Button>
        </>
      ),
    },
  ];
}

interface AddMethodProps {
  readonly isTest: boolean;
  /** Why a payment method is needed. */
  readonly lead?: string;
  onChanged(): void;
  /** Called after a method was added. Default: the dialog closes. */
  onAdded?(): void;
  onClose(): void;
}

/**
 * Adds a payment method. The card is entered on the payment processor's page, so the gateway never receives
 * its number.
 */
export function AddMethodDialog({
  isTest,
  lead,
  onChanged,
  onClose,
  onAdded = onClose,
}: AddMethodProps) {
  const [card, setCard] = useState(TEST_CARDS[0]![0]);
  const [setupUrl, setSetupUrl] = useState<string>();
  useReturn(onChanged);
  const close = () => {
    onChanged();
    onClose();
  };
  const add = async () => {
    const body = isTest ? { payment_method: card } : {};
    const added = await call<{ setup_url: string | null }>("POST", "v1/billing/payment_methods", {
      body,
    });
    if (added.setup_url !== null) return setSetupUrl(added.setup_url);
    toast("Added the payment method.");
    onChanged();
    onAdded();
  };
  if (setupUrl !== undefined) {
    return (
      <Dialog title="Add a payment method" onClose={close}>
        <p>
          Enter the card on the payment processor's page. It then appears here within two minutes.
        </p>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            close();
          }}
        >
          <footer>
            <Button type="submit">Done</Button>
            <OutsideLink href={setupUrl} class="button primary">
              Enter card
            </OutsideLink>
          </footer>
        </form>
      </Dialog>
    );
  }
  return (
    <Dialog title="Add a payment method" onClose={onClose}>
      <Form submit={isTest ? "Add" : "Continue"} onCancel={onClose} onSubmit={add}>
        {lead !== undefined && <p>{lead}</p>}
        {isTest ? (
          <Choice label="Test card" value={card} options={TEST_CARDS} onChange={setCard} />
        ) : (
          <p>
            You enter the card on the page of the payment processor, Stripe. The gateway does not
            receive its number.
          </p>
        )}
      </Form>
    </Dialog>
  );
}
