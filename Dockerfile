# specviz on a processor. Build: docker build -t specviz .   Run: docker run --rm -p 7860:7860 specviz
FROM python:3.12-slim AS build
WORKDIR /source
COPY requirements.txt ./
RUN python -m venv /opt/specviz \
    && /opt/specviz/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu "torch>=2.8,<2.14" \
    && /opt/specviz/bin/pip install --no-cache-dir -r requirements.txt
COPY . .
RUN /opt/specviz/bin/pip install --no-cache-dir --no-deps .

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 specviz
COPY --from=build /opt/specviz /opt/specviz
ENV PATH=/opt/specviz/bin:$PATH GRADIO_SERVER_NAME=0.0.0.0 GRADIO_ANALYTICS_ENABLED=0 PYTHONUNBUFFERED=1
USER 1000
WORKDIR /home/specviz
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/', timeout=4)"]
ENTRYPOINT ["specviz"]
