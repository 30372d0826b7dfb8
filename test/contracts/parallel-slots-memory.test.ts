import { MemorySlots } from "../../src/cluster/parallel-slots.ts";
import { describeParallelSlots } from "./parallel-slots.ts";

describeParallelSlots(async () => new MemorySlots());
