import { testSchedules } from "./schedules.ts";

testSchedules(4);
