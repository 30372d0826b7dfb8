import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { LOCAL_DELIVERY, type Receiver, startReceiver } from "./receiver.ts";

export interface HookGateway extends TestGateway {
  /** Starts a receiver that lives until `stopReceivers`. */
  receive(answer?: Receiver["answer"]): Receiver;
  stopReceivers(): Promise<void>;
}

/** A gateway that delivers to receivers on this machine. */
export async function startHookGateway(
  environment: Readonly<Record<string, string>> = {},
): Promise<HookGateway> {
  const gateway = await startTestGateway({ environment: { ...LOCAL_DELIVERY, ...environment } });
  const receivers: Receiver[] = [];
  return {
    ...gateway,
    receive(answer) {
      const receiver = startReceiver(answer);
      receivers.push(receiver);
      return receiver;
    },
    async stopReceivers() {
      for (const receiver of receivers.splice(0)) await receiver.stop();
    },
  };
}
