/* SPDX-License-Identifier: MIT
 * See control.h. A tool finds the settings by their records, and writes changeable ones (`hakmem set`). So a setting is
 * changeable only if its readers accept any value at any time. */
#include "control.h"

#include "core/base/layout.h"
#include "core/base/log.h"
#include "core/base/observer.h"
#include "core/base/sealed.h"
#include "core/base/text.h"
#include "core/pages/guard.h"
#include "core/pages/page_map.h"
#include "core/pages/slab.h"
#include "core/pages/superslab.h"
#include "core/parts/parts.h"
#include "maintenance.h"
#include "start.h"
#include "stats_sink.h"

/* What tools read. Files show their static variables themselves. */
static void show_structures(void)
{
    HAK_SHOW_VARIABLE(hak_page_map);
    HAK_SHOW_FIELD(hak_page_map, descriptors);
    HAK_SHOW_FIELD(hak_page_map, rotation);
    HAK_SHOW_FIELD(hak_page_map, mask);
    HAK_SHOW_NUMBER("superslab_lg", HAK_SUPERSLAB_LG);
    HAK_SHOW_SIZE(hak_superslab);
    HAK_SHOW_FIELD(hak_superslab, free);
    HAK_SHOW_FIELD(hak_superslab, state);
    HAK_SHOW_FIELD(hak_superslab, cached_ms);
    HAK_SHOW_FIELD(hak_superslab, pages.old);
    HAK_SHOW_FIELD(hak_superslab, pages.refused);
    HAK_SHOW_FIELD(hak_superslab, pages.checked_ms);
    HAK_SHOW_NUMBER("hak_superslab.cached", HAK_CACHED);
    HAK_SHOW_SIZE(hak_slab);
    HAK_SHOW_FIELD(hak_slab, base);
    HAK_SHOW_FIELD(hak_slab, bitmap);
    HAK_SHOW_FIELD(hak_slab, head_offset);
    HAK_SHOW_FIELD(hak_slab, below);
    HAK_SHOW_FIELD(hak_slab, used);
    HAK_SHOW_FIELD(hak_slab, carved);
    HAK_SHOW_FIELD(hak_slab, capacity);
    HAK_SHOW_FIELD(hak_slab, stride);
    HAK_SHOW_FIELD(hak_slab, pages);
    HAK_SHOW_FIELD(hak_slab, cls);
    HAK_SHOW_FIELD(hak_slab, word);
    HAK_SHOW_FIELD(hak_slab, owner);
    HAK_SHOW_FIELD(hak_slab, region);
    HAK_SHOW_FIELD(hak_slab, since_ms);
    HAK_SHOW_FIELD(hak_slab, requested);
    HAK_SHOW_NUMBER("state.active", HAK_SLAB_ACTIVE);
    HAK_SHOW_NUMBER("state.full", HAK_SLAB_FULL);
    HAK_SHOW_NUMBER("state.partial", HAK_SLAB_PARTIAL);
    HAK_SHOW_NUMBER("state.empty", HAK_SLAB_EMPTY);
    HAK_SHOW_NUMBER("state.span", HAK_SLAB_SPAN);
    HAK_SHOW_NUMBER("state_mask", HAK_SLAB_STATE_MASK);
    HAK_SHOW_NUMBER("remote_shift", HAK_SLAB_COUNT_SHIFT);
    HAK_SHOW_NUMBER("remote_mask", HAK_SLAB_COUNT_MASK);
    HAK_SHOW_VARIABLE(hak_sealed);
    HAK_SHOW_SIZE(hak_option_info);
    HAK_SHOW_FIELD(hak_option_info, default_value);
    HAK_SHOW_FIELD(hak_option_info, min);
    HAK_SHOW_FIELD(hak_option_info, max);
    HAK_SHOW_FIELD(hak_option_info, offset);
    HAK_SHOW_FIELD(hak_option_info, texts);
    HAK_SHOW_FIELD(hak_option_info, type);
    HAK_SHOW_NUMBER("text_max", HAK_TEXT_MAX);
    HAK_SHOW_VARIABLE(hak_guard_is_on);
    HAK_SHOW_VARIABLE(hak_log_ring);
    HAK_SHOW_VARIABLE(hak_log_written);
    HAK_SHOW_VARIABLE(hak_stage_latencies);
    HAK_SHOW_VARIABLE(hak_parts.backend);
    HAK_SHOW_FIELD(hak_backend, stages);
    HAK_SHOW_SIZE(hak_stage);
}

int hak_control_get(const char *name, char *value, size_t size)
{
    show_structures();
    const struct hak_option_info *info = hak_option_find(name, hak_text_length(name));
    if (!info)
        return -ENOENT;
    char number[16];
    const char *at = (const char *)&hak_options + info->offset;
    size_t length = 0;
    if (info->type == HAK_TYPE_ENUM) {
        at = hak_option_choice(hak_option_text(info, HAK_TEXT_CHOICES), *(const uint32_t *)at, &length);
    } else if (info->type != HAK_TYPE_TEXT) {
        hak_text_format(number, sizeof number, "%u", *(const uint32_t *)at);
        at = number;
    }
    length = length ? length : hak_text_length(at);
    if (length >= size)
        return -ERANGE;
    hak_move(value, at, length);
    value[length] = 0;
    return 0;
}

int hak_control_profile(size_t mean)
{
    return &hak_observer_profile ? hak_observer_profile.set(mean) : -ENOSYS;
}

int hak_control_set(const char *name, const char *value)
{
    uint32_t number;
    const struct hak_option_info *info = hak_option_find(name, hak_text_length(name));
    if (!info)
        return -ENOENT;
    if (!hak_option_is_changeable(info))
        return -EPERM;
    if (!hak_option_parse(info, value, &number))
        return -EINVAL;
    bool guard = info->offset == offsetof(struct hak_option_values, guard_rate) && number;
    int error = info->offset == offsetof(struct hak_option_values, profile) ? hak_control_profile(number) : 0;
    if (!error && guard && !hak_guard_start())
        error = -ENOMEM;
    if (!error)
        error = hak_change_sealed((char *)&hak_options + info->offset, number);
    if (number && info->offset == offsetof(struct hak_option_values, stage_stats))
        hak_stats_sink_keep_stderr();
    hak_maintenance_background(); /* if that was the setting */
    return error;
}
