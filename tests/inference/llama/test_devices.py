from inference.llama.devices import DeviceKind, list_devices


def test_there_is_a_cpu_with_a_name_and_memory() -> None:
    cpus = [device for device in list_devices() if device.kind == DeviceKind.CPU]
    assert len(cpus) == 1
    assert cpus[0].description
    assert 0 < cpus[0].free_bytes <= cpus[0].total_bytes
