/* findings.h - prints the findings of a checkpoint as text and as JSON: verify, info and convert.
 */
#pragma once

#include "cli/lib/cli.h"
#include "sheaf/checkpoint.h"

/* cli_facts_print - the facts, a line each; cli_facts_json - the same as keys of an open object. */
void cli_facts_print(FILE *to, const sheaf_verification_facts *facts);
void cli_facts_json(sheaf_json_writer *j, const sheaf_verification_facts *facts);

/* cli_findings_print - the worst of `count` first, at most `most` paragraphs; findings that differ
 * only in their tensors share one. */
void cli_findings_print(FILE *to, const sheaf_finding *all, int64_t count, int64_t most);
/* cli_findings_json - entries of an open list. */
void cli_findings_json(sheaf_json_writer *j, const sheaf_verification *verification);
