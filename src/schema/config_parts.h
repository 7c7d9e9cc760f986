/* config_parts.h - keys that configs of all families spell alike. Failures are kept in r->st. */
#pragma once

#include "base/json.h"
#include "base/text.h"
#include "schema/config.h"

/* sheaf__config_read_id - one token id below `vocab`; -1: absent, null or -1, which mean none. */
int64_t sheaf__config_read_id(sheaf_json_reader *r, const char *key, int64_t vocab);
void sheaf__config_read_eos(sheaf_json_reader *r, sheaf_config *c);
void sheaf__config_read_tokenizer(sheaf_json_reader *r, sheaf_config *c);
/* sheaf__config_read_dtype - dtype (5.x) or torch_dtype (4.x). */
void sheaf__config_read_dtype(sheaf_json_reader *r, sheaf_config *c);
