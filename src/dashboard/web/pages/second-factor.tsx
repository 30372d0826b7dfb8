import { useEffect, useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button, CopyText, Field } from "../components/controls.tsx";
import { Dialog, Form, messageOf, toast } from "../components/dialog.tsx";
import { Badge, Notice, Panel, Skeleton } from "../components/display.tsx";
import { type Account, CurrentPassword } from "./account.tsx";

interface SecondFactorProps {
  readonly account: Account;
  onChanged(): void;
}

/** The second factor of the account, which is off until the person sets it up. */
export function SecondFactor({ account, onChanged }: SecondFactorProps) {
  const [isOpen, setOpen] = useState(false);
  const isOn = account.has_second_factor;
  const close = () => setOpen(false);
  return (
    <Panel
      title="Second factor"
      aside={
        <Button onClick={() => setOpen(true)}>{isOn ? "Remove" : "Set up second factor"}</Button>
      }
    >
      <p class="quiet">
        {isOn ? <Badge tone="good">On</Badge> : <Badge>Off</Badge>} An authenticator app shows codes
        that change every 30 seconds. Signing in takes the password and a code.
      </p>
      {isOpen &&
        (isOn ? (
          <RemoveDialog {...{ onChanged }} onClose={close} />
        ) : (
          <SetUpDialog {...{ onChanged }} onClose={close} />
        ))}
    </Panel>
  );
}

interface FactorDialogProps {
  onChanged(): void;
  onClose(): void;
}

/** The answer of POST /dashboard/api/account/second_factor/new. */
interface NewFactor {
  readonly secret: string;
  /** An otpauth URL, which authenticator apps open. */
  readonly url: string;
}

function SetUpDialog({ onChanged, onClose }: FactorDialogProps) {
  const [factor, setFactor] = useState<NewFactor>();
  const [fault, setFault] = useState<unknown>();
  const [code, setCode] = useState("");
  const [password, setPassword] = useState("");
  useEffect(() => {
    call<NewFactor>("POST", "account/second_factor/new").then(setFactor).catch(setFault);
  }, []);
  const confirm = async () => {
    const body = { secret: factor?.secret, code: code.trim(), current_password: password };
    await call("POST", "account/second_factor", { body });
    toast("The second factor is on.");
    onClose();
    onChanged();
  };
  return (
    <Dialog title="Set up a second factor" onClose={onClose}>
      {fault !== undefined && <Notice tone="bad">{messageOf(fault)}</Notice>}
      {factor === undefined ? (
        fault === undefined && <Skeleton />
      ) : (
        <Form submit="Switch on" onCancel={onClose} onSubmit={confirm}>
          <p>
            Add the secret to your authenticator app. On the device with the app, you can{" "}
            <a href={factor.url}>open it in the app</a>.
          </p>
          <CopyText text={factor.secret} label="secret" />
          <Field
            label="Code"
            value={code}
            onInput={setCode}
            isRequired
            inputMode="numeric"
            hint="The 6 digits that the app shows now"
            autocomplete="one-time-code"
          />
          <CurrentPassword value={password} onInput={setPassword} />
          <p class="hint">
            Keep a copy of the secret in a safe place: without the app or the secret you cannot sign
            in.
          </p>
        </Form>
      )}
    </Dialog>
  );
}

function RemoveDialog({ onChanged, onClose }: FactorDialogProps) {
  const [password, setPassword] = useState("");
  const remove = async () => {
    const body = { current_password: password };
    await call("POST", "account/second_factor/remove", { body });
    toast("The second factor is off.");
    onClose();
    onChanged();
  };
  return (
    <Dialog title="Remove the second factor?" onClose={onClose}>
      <Form submit="Remove second factor" isDanger onCancel={onClose} onSubmit={remove}>
        <p>Signing in then takes the password only.</p>
        <CurrentPassword value={password} onInput={setPassword} />
      </Form>
    </Dialog>
  );
}
