/* meeting.h - until the processes of a run watch each other (comm/watch/watch.h) a clock does: an
 * MPI waits for ever for one that was stopped, or whose host was lost, before that. */
#pragma once

#include <stdbool.h>

/* cli_meeting_clock - called as it joins the others: this process ends with exit code 3, and says
 * why, if it has not met them within SHEAF_MEET_WITHIN seconds (300). */
void cli_meeting_clock(void);
/* cli_meeting_begin - with `json` the first one says so on standard output, too. */
void cli_meeting_begin(bool json);
/* cli_meeting_over - they are met, and watched. */
void cli_meeting_over(void);
